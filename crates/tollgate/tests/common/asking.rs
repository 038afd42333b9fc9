//! Asking the governor over HTTP, one by one and in a flood.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

use super::daemon::{Answer, Daemon};

/// An intent of this agent, for this work.
pub(crate) fn intent(agent: &str, workload: &str) -> Value {
    json!({"agent_id": agent, "identity_id": "pat:one", "workload_id": workload, "scope_id": "repo:o/n"})
}

/// The same with more members, or with other ones.
pub(crate) fn with(mut intent: Value, members: &Value) -> Value {
    let all = intent.as_object_mut().unwrap();
    all.extend(members.as_object().unwrap().clone());
    intent
}

/// May the client act, at once or later?
pub(crate) fn is_approved(decision: &Value) -> bool {
    decision["status"].as_str().unwrap().starts_with("approve")
}

impl Daemon {
    /// Asks without a key. Whatever is decided, the status is 200.
    pub(crate) fn ask(&self, intent: &Value) -> Value {
        let answer = self.post("/v1/intent", None, &intent.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        let decision = answer.json();
        assert_eq!(decision["decision"], decision["status"]);
        decision
    }

    /// Asks with a key.
    pub(crate) fn ask_as(&self, key: &str, intent: &Value) -> Value {
        let answer = self.post("/v1/intent", Some(key), &intent.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Reports what was used, without a key.
    pub(crate) fn report(&self, body: &Value) -> Answer {
        self.post("/v1/usage", None, &body.to_string())
    }

    /// The pool of this name; of this key where it is counted for each.
    pub(crate) fn pool(&self, id: &str, key: Option<&str>) -> Value {
        let all = self.get("/v1/pools", Some(&self.admin())).json();
        let is_it = |pool: &&Value| pool["id"] == id && key.is_none_or(|key| pool["key"] == key);
        let found = all["pools"].as_array().unwrap().iter().find(is_it);
        found.unwrap_or_else(|| panic!("there is no pool {id} {key:?} in {all}")).clone()
    }

    /// The events of this kind, in order.
    pub(crate) fn events_of(&self, kind: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["kind"] == kind).collect()
    }

    /// The ledger verifies.
    pub(crate) fn verifies(&self) {
        let ran = self.cli(&["ledger", "verify", "--data", ".tollgate"]);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    }
}

/// A connection that is kept, for many asks.
pub(crate) struct Kept(TcpStream);

impl Kept {
    pub(crate) fn to(daemon: &Daemon) -> Self {
        Self::at(&daemon.address()).unwrap()
    }

    pub(crate) fn at(address: &str) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(super::daemon::PATIENCE)).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self(stream))
    }

    /// The answer's status and body; `None` once the gate is gone.
    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.write_all(request.as_bytes()).ok()?;
        let mut text = Vec::new();
        let mut piece = [0; 16 * 1024];
        loop {
            let count = self.0.read(&mut piece).ok().filter(|count| *count > 0)?;
            text.extend_from_slice(piece.get(..count)?);
            let whole = String::from_utf8_lossy(&text);
            let Some((head, rest)) = whole.split_once("\r\n\r\n") else { continue };
            let length = head.to_lowercase().split("content-length: ").nth(1)?.to_owned();
            let length: usize = length.split("\r\n").next()?.trim().parse().ok()?;
            if rest.len() >= length {
                let status = head.split(' ').nth(1)?.parse().ok()?;
                return Some((status, serde_json::from_str(rest).ok()?));
            }
        }
    }

    /// A decision; `None` once the gate is gone.
    pub(crate) fn ask(&mut self, intent: &Value) -> Option<Value> {
        let (status, decision) = self.post("/v1/intent", intent)?;
        assert_eq!(status, 200, "{decision}");
        Some(decision)
    }
}

/// Milliseconds since 1970 of a time as answers write it.
pub(crate) fn ms(text: &Value) -> i64 {
    let time: jiff::Timestamp = text.as_str().unwrap_or_else(|| panic!("{text}")).parse().unwrap();
    time.as_millisecond()
}

/// Milliseconds since 1970, now.
pub(crate) fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
