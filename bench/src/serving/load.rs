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
    sync::Arc,
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
    /// One behind the other, and again from the start; each connection begins with another one.
    pub(crate) requests: Arc<[Vec<u8>]>,
    pub(crate) connections: usize,
}

impl Target {
    /// Always the same request.
    pub(crate) fn new(address: SocketAddr, request: Vec<u8>) -> Self {
        Self { address, requests: Arc::new([request]), connections: CONNECTIONS }
    }

    /// The request that comes at this place.
    pub(crate) fn request(&self, number: usize) -> &[u8] {
        let place = number.checked_rem(self.requests.len()).unwrap_or(0);
        self.requests.get(place).map_or(&[], Vec::as_slice)
    }
}

/// What came back.
#[derive(Default, Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) count: u64,
    /// Decisions among a sample of them: approvals, approvals with a wait, denials.
    pub(crate) words: [u64; 3],
}

/// One answer in so many is looked at.
const LOOKED_AT: u64 = 64;

impl Answered {
    fn look(&mut self, answer: &[u8]) {
        const NAME: &[u8] = b"\"decision\":\"";
        let Some(at) = answer.windows(NAME.len()).position(|part| part == NAME) else { return };
        let word = answer.get(at + NAME.len()..).unwrap_or_default();
        let [approved, waits, denied] = &mut self.words;
        match word {
            _ if word.starts_with(b"approve_") => *waits += 1,
            _ if word.starts_with(b"approve") => *approved += 1,
            _ => *denied += 1,
        }
    }

    fn add(&mut self, other: Self) {
        self.count += other.count;
        for (mine, its) in self.words.iter_mut().zip(other.words) {
            *mine += its;
        }
    }
}

/// Sends one request and gives the whole answer.
pub(crate) fn once(target: &Target) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut connection = Connection::open(target).map_err(|error| error.to_string())?;
    connection.exchange(target.request(0)).map_err(|error| error.to_string())?;
    Ok(connection.buffer)
}

/// How many answers came within `lasting`, when every connection asks as fast as it is answered.
/// `begin` is called when counting begins.
pub(crate) fn saturate(
    target: &Target,
    lasting: Duration,
    begin: impl FnOnce(),
) -> Result<(Answered, Duration), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let start = Instant::now();
        let from = start + WARM_UP;
        let until = from + lasting;
        let tasks: Vec<_> = (0..target.connections)
            .map(|place| tokio::spawn(ask_until(target.clone(), place, from, until)))
            .collect();
        tokio::time::sleep_until(from.into()).await;
        begin();
        let mut answered = Answered::default();
        for task in tasks {
            answered.add(task.await?.map_err(|error| error.to_string())?);
        }
        Ok((answered, from.elapsed()))
    })
}

async fn ask_until(
    target: Target,
    place: usize,
    from: Instant,
    until: Instant,
) -> Outcome<Answered> {
    let mut stream = tokio::net::TcpStream::connect(target.address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut answered = Answered::default();
    for number in place.. {
        stream.write_all(target.request(number)).await?;
        buffer.clear();
        while whole(&buffer)?.is_none() {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Err("the server closed the connection".into());
            }
        }
        let now = Instant::now();
        if now >= until {
            break;
        }
        answered.count += u64::from(now >= from);
        if answered.count % LOOKED_AT == 1 {
            answered.look(&buffer);
        }
    }
    Ok(answered)
}

/// How long answers took, in nanoseconds.
#[derive(Default)]
pub(crate) struct Paced {
    /// From when the request left; where the answer before it was late, from when it should have left.
    /// A sleep that lasts too long is the client's fault and nobody's latency here.
    pub(crate) answered: Vec<u64>,
    /// From when it should have left, whatever kept it: nothing is left out, the client's own sleep least
    /// of all.
    pub(crate) scheduled: Vec<u64>,
}

/// How long answers took, sorted, when `rate` requests a second leave for `lasting`.
pub(crate) fn paced(
    target: &Target,
    rate: f64,
    lasting: Duration,
) -> Result<Paced, Box<dyn Error>> {
    let start = Instant::now() + Duration::from_millis(50);
    let connections = target.connections;
    let every = Duration::from_secs_f64(connections as f64 / rate);
    let threads: Vec<_> = (0..connections)
        .map(|place| {
            let target = target.clone();
            let first = start + every.mul_f64(place as f64 / connections as f64);
            let times = (first + WARM_UP, first + WARM_UP + lasting);
            thread::spawn(move || ask_by_timetable(&target, place, first, every, times))
        })
        .collect();
    let mut all = Paced::default();
    for thread in threads {
        let took = thread.join().map_err(|_| "a connection's thread panicked")?;
        let took = took.map_err(|error| error.to_string())?;
        all.answered.extend(took.answered);
        all.scheduled.extend(took.scheduled);
    }
    all.answered.sort_unstable();
    all.scheduled.sort_unstable();
    Ok(all)
}

fn ask_by_timetable(
    target: &Target,
    place: usize,
    first: Instant,
    every: Duration,
    (from, until): (Instant, Instant),
) -> Outcome<Paced> {
    let mut connection = Connection::open(target)?;
    let mut took = Paced::default();
    let mut due = first;
    let mut number = place;
    while due < until {
        let ahead = due.saturating_duration_since(Instant::now());
        let since = if ahead.is_zero() {
            due
        } else {
            thread::sleep(ahead);
            Instant::now()
        };
        connection.exchange(target.request(number))?;
        if due >= from {
            let now = Instant::now();
            took.answered.push(u64::try_from((now - since).as_nanos())?);
            took.scheduled.push(u64::try_from((now - due).as_nanos())?);
        }
        due += every;
        number += 1;
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
