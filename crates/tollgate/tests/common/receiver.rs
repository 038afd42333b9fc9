//! A small HTTP server of a test: a provider that is asked, or somebody to whom events are sent.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Came {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Came {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Says what to answer: the status, and the body.
type Says = Box<dyn Fn(&Came) -> (u16, String) + Send + Sync>;

/// The server. It ends with its test.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    came: Arc<Mutex<Vec<(Came, u16)>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    pub(crate) fn start(says: impl Fn(&Came) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (came, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let says: Arc<Says> = Arc::new(Box::new(says));
        let (own, ends) = (Arc::clone(&came), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (came, says) = (Arc::clone(&own), Arc::clone(&says));
                std::thread::spawn(move || answer(stream, &came, &says));
            }
        });
        Self { address, came, stop, thread: Some(thread) }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What came, with what was answered, in order.
    pub(crate) fn came(&self) -> Vec<(Came, u16)> {
        self.came.lock().unwrap().clone()
    }

    /// What was accepted, in order.
    pub(crate) fn accepted(&self) -> Vec<Came> {
        self.came().into_iter().filter(|(_, status)| *status == 200).map(|(came, _)| came).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Whoever waits for the next one is woken.
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// One request, one answer, and the connection is closed.
fn answer(mut stream: TcpStream, came: &Mutex<Vec<(Came, u16)>>, says: &Says) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let mut bytes = Vec::new();
    let mut piece = [0; 16 * 1024];
    let request = loop {
        let whole = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = whole.split_once("\r\n\r\n") {
            let length = head.to_lowercase();
            let length = length.split("content-length: ").nth(1);
            let length =
                length.and_then(|rest| rest.lines().next()?.trim().parse().ok()).unwrap_or(0);
            if body.len() >= length {
                break Came { head: head.to_owned(), body: body.to_owned() };
            }
        }
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
            _ => return,
        }
    };
    let (status, body) = says(&request);
    came.lock().unwrap().push((request, status));
    let text = format!(
        "HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(text.as_bytes());
}
