//! A server on this machine that records what it is asked and answers as a test says.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderMap, Response},
};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// How to answer; `None` is never.
pub(crate) type Answer = Option<Response<Body>>;

/// A status with headers and a body.
pub(crate) fn reply(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    Some(response.body(body.into()).unwrap())
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// How many were asked, and how many of those that are never answered went away again.
    counts: watch::Receiver<(usize, usize)>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Counts when whoever asked goes away.
struct Left(watch::Sender<(usize, usize)>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.send_modify(|counts| counts.1 += 1);
    }
}

impl Server {
    /// Starts a server whose answers depend on how many requests came before, and on the request.
    pub(crate) async fn start(
        answer: impl Fn(usize, &Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (count, counts) = watch::channel((0, 0));
        let (all, answer) = (Arc::clone(&seen), Arc::new(answer));
        let app = Router::new().fallback(move |request: Request| {
            let (all, answer, count) = (Arc::clone(&all), Arc::clone(&answer), count.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.unwrap();
                let one = Seen {
                    method: head.method.to_string(),
                    path: head.uri.to_string(),
                    headers: head.headers,
                    body: String::from_utf8(body.to_vec()).unwrap(),
                };
                let nth = {
                    let mut all = all.lock().unwrap();
                    all.push(one.clone());
                    all.len() - 1
                };
                let answered = answer(nth, &one);
                count.send_modify(|counts| counts.0 += 1);
                match answered {
                    Some(response) => response,
                    None => {
                        let _left = Left(count);
                        std::future::pending().await
                    }
                }
            }
        });
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, seen, counts, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until it was asked so often.
    pub(crate) async fn asked(&self, times: usize) -> Vec<Seen> {
        let mut counts = self.counts.clone();
        soon(counts.wait_for(|counts| counts.0 >= times)).await.unwrap();
        self.seen()
    }

    /// Waits until so many who are never answered went away.
    pub(crate) async fn left(&self, times: usize) {
        let mut counts = self.counts.clone();
        soon(counts.wait_for(|counts| counts.1 >= times)).await.unwrap();
    }
}

/// What should come, and ends the test if it does not.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("it never came")
}
