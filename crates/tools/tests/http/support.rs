//! Servers that answer as a test says and count who comes, and a fetcher to try on them.

use std::{
    net::SocketAddr,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tollgate_tools::http::{Fetched, Fetcher, Get, Host, HttpConfig, HttpProblem, Reach};

/// When all of this happens.
pub(crate) const NOW: i64 = 1_700_000_000_000;

/// How a server answers.
pub(crate) enum Answer {
    /// These bytes, and the end.
    Bytes(Vec<u8>),
    /// These bytes, and then these others again and again, each after a while.
    Endless(Vec<u8>, Vec<u8>, Duration),
}

/// A server on this machine.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// How many went away before their answer was over.
    left: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0", answer).await
    }

    pub(crate) async fn at(
        address: &str,
        answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, left, requests) = (Arc::default(), Arc::default(), Arc::default());
        let seen = (Arc::clone(&connections), Arc::clone(&left), Arc::clone(&requests));
        let answer = Arc::new(answer);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (connections, left, requests): &(Arc<AtomicUsize>, Arc<AtomicUsize>, _) = &seen;
                connections.fetch_add(1, Ordering::SeqCst);
                let (left, requests) = (Arc::clone(left), Arc::clone(requests));
                tokio::spawn(serve(stream, Arc::clone(&answer), left, requests));
            }
        });
        Self { address, connections, left, requests, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Waits until this many have left.
    pub(crate) async fn until_left(&self, count: usize) {
        until(|| self.left.load(Ordering::SeqCst) >= count).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits until something holds.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never happened");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: Arc<impl Fn(&str) -> Answer>,
    left: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    let request = String::from_utf8(request).unwrap();
    let path = request.split(' ').nth(1).unwrap().to_owned();
    requests.lock().unwrap().push(request);
    match answer(&path) {
        Answer::Bytes(bytes) => {
            _ = stream.write_all(&bytes).await;
            _ = stream.shutdown().await;
        }
        Answer::Endless(head, piece, pause) => {
            let mut written = stream.write_all(&head).await;
            let (mut reader, mut writer) = stream.into_split();
            let gone = async {
                let mut rest = Vec::new();
                _ = reader.read_to_end(&mut rest).await;
            };
            let more = async {
                while written.is_ok() {
                    written = writer.write_all(&piece).await;
                    tokio::time::sleep(pause).await;
                }
            };
            tokio::select! { () = gone => {}, () = more => {} }
            left.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// An answer with a status, headers and a body.
pub(crate) fn reply(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Answer {
    let body = body.as_ref();
    let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    Answer::Bytes([head.as_bytes(), b"\r\n", body].concat())
}

pub(crate) fn text(body: &str) -> Answer {
    reply(200, &[("content-type", "text/plain")], body)
}

pub(crate) fn redirect(to: &str) -> Answer {
    reply(302, &[("location", to)], "")
}

/// The number in a path such as `/3`.
pub(crate) fn number(path: &str) -> usize {
    path.trim_start_matches('/').parse().unwrap()
}

pub(crate) struct Fixture {
    pub(crate) data: TempDir,
    pub(crate) fetcher: Fetcher,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(HttpConfig::default())
    }

    pub(crate) fn with(config: HttpConfig) -> Self {
        let data = tempfile::tempdir().unwrap();
        let fetcher = Fetcher::new(config, data.path());
        Self { data, fetcher }
    }

    /// A fetch by somebody who may reach every host by name, without the cache.
    pub(crate) async fn get(&self, url: &str) -> Result<Fetched, HttpProblem> {
        self.get_as(url, false, NOW, &|_| Reach::Named).await
    }

    /// A fetch by somebody who may reach what is public.
    pub(crate) async fn get_public(&self, url: &str) -> Result<Fetched, HttpProblem> {
        self.get_as(url, false, NOW, &|_| Reach::Public).await
    }

    pub(crate) async fn get_as(
        &self,
        url: &str,
        use_cache: bool,
        now_ms: i64,
        reach: &(dyn Fn(&Host) -> Reach + Sync),
    ) -> Result<Fetched, HttpProblem> {
        let deadline = Instant::now() + Duration::from_secs(15);
        let cancel = CancellationToken::new();
        let get = Get { url, use_cache, now_ms, deadline, cancel: &cancel, reach };
        self.fetcher.fetch(get).await
    }

    /// A fetch by somebody with little time.
    pub(crate) async fn get_within(
        &self,
        url: &str,
        time: Duration,
    ) -> Result<Fetched, HttpProblem> {
        let deadline = Instant::now() + time;
        let cancel = CancellationToken::new();
        let reach = |_: &Host| Reach::Named;
        let get =
            Get { url, use_cache: false, now_ms: NOW, deadline, cancel: &cancel, reach: &reach };
        self.fetcher.fetch(get).await
    }
}

/// Is this the program that a test started again in this role?
pub(crate) fn is_role(role: &str) -> bool {
    std::env::var("TOLLGATE_TEST_ROLE").is_ok_and(|found| found == role)
}

/// This program again, to run one of its tests in a role.
pub(crate) fn again(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("TOLLGATE_TEST_ROLE", role);
    command
}

/// Runs it and expects that its test passed.
pub(crate) async fn passes(mut command: Command) {
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.contains("1 passed"), "{said}");
}
