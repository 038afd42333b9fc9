//! The load: the same bytes over keep-alive connections, to whichever server it is.
//!
//! To find the most that a server gives, every connection asks again as soon as it is answered, all of
//! them in one thread. To find how long an answer takes, requests leave by a timetable, whether or not
//! the earlier ones are answered, each connection in a thread of its own, since only those can wait for
//! less than a millisecond.

use std::{
    error::Error,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::answer::end_of;

/// How many connections there are.
pub(crate) const CONNECTIONS: usize = 64;

/// How long a load lasts before anything counts.
const WARM_UP: Duration = Duration::from_millis(200);

/// Room for an answer.
const BUFFER: usize = 64 * 1024;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What is sent, and where to.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) request: Vec<u8>,
}

/// Sends one request and gives the whole answer.
pub(crate) fn once(target: &Target) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut connection = Connection::open(target).map_err(|error| error.to_string())?;
    connection.exchange(&target.request).map_err(|error| error.to_string())?;
    Ok(connection.buffer)
}

/// How many answers came within `lasting`, when every connection asks as fast as it is answered.
/// `begin` is called when counting begins.
pub(crate) fn saturate(
    target: &Target,
    lasting: Duration,
    begin: impl FnOnce(),
) -> Result<(u64, Duration), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let start = Instant::now();
        let from = start + WARM_UP;
        let until = from + lasting;
        let tasks: Vec<_> = (0..CONNECTIONS)
            .map(|_| tokio::spawn(ask_until(target.clone(), from, until)))
            .collect();
        tokio::time::sleep_until(from.into()).await;
        begin();
        let mut answered = 0;
        for task in tasks {
            answered += task.await?.map_err(|error| error.to_string())?;
        }
        Ok((answered, from.elapsed()))
    })
}

async fn ask_until(target: Target, from: Instant, until: Instant) -> Outcome<u64> {
    let mut stream = tokio::net::TcpStream::connect(target.address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut answered = 0;
    loop {
        stream.write_all(&target.request).await?;
        buffer.clear();
        while whole(&buffer)?.is_none() {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Err("the server closed the connection".into());
            }
        }
        let now = Instant::now();
        if now >= until {
            return Ok(answered);
        }
        answered += u64::from(now >= from);
    }
}

/// How long answers took, in nanoseconds and sorted, when `rate` requests a second leave for `lasting`.
///
/// A request that could not leave in time, because the answer before it was late, counts from when it
/// should have left.
pub(crate) fn paced(
    target: &Target,
    rate: f64,
    lasting: Duration,
) -> Result<Vec<u64>, Box<dyn Error>> {
    let start = Instant::now() + Duration::from_millis(50);
    let every = Duration::from_secs_f64(CONNECTIONS as f64 / rate);
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|place| {
            let target = target.clone();
            let first = start + every.mul_f64(place as f64 / CONNECTIONS as f64);
            let times = (first + WARM_UP, first + WARM_UP + lasting);
            thread::spawn(move || ask_by_timetable(&target, first, every, times))
        })
        .collect();
    let mut all = Vec::new();
    for thread in threads {
        let took = thread.join().map_err(|_| "a connection's thread panicked")?;
        all.extend(took.map_err(|error| error.to_string())?);
    }
    all.sort_unstable();
    Ok(all)
}

fn ask_by_timetable(
    target: &Target,
    first: Instant,
    every: Duration,
    (from, until): (Instant, Instant),
) -> Outcome<Vec<u64>> {
    let mut connection = Connection::open(target)?;
    let mut took = Vec::new();
    let mut due = first;
    while due < until {
        let ahead = due.saturating_duration_since(Instant::now());
        // A sleep that lasts too long is the client's fault and nobody's latency.
        let since = if ahead.is_zero() {
            due
        } else {
            thread::sleep(ahead);
            Instant::now()
        };
        connection.exchange(&target.request)?;
        if due >= from {
            took.push(u64::try_from(since.elapsed().as_nanos())?);
        }
        due += every;
    }
    Ok(took)
}

/// A connection that waits for its answers.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(target: &Target) -> Outcome<Self> {
        let stream = TcpStream::connect(target.address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Sends a request and waits for all of its answer.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> Outcome<()> {
        self.stream.write_all(request)?;
        self.buffer.clear();
        let mut piece = [0; 16 * 1024];
        while whole(&self.buffer)?.is_none() {
            let read = self.stream.read(&mut piece)?;
            if read == 0 {
                return Err("the server closed the connection".into());
            }
            self.buffer.extend_from_slice(piece.get(..read).unwrap_or_default());
        }
        Ok(())
    }
}

fn whole(buffer: &[u8]) -> Outcome<Option<usize>> {
    end_of(buffer).map_err(|error| error.to_string().into())
}
