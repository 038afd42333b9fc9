//! A real gate in a folder of its own, on a port that the system picks. It ends with its test.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use super::Ran;

/// How long a test waits for something that must happen, on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running gate.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) url: String,
    pub(crate) folder: Arc<TempDir>,
    printed: Arc<Mutex<String>>,
    logged: Arc<Mutex<String>>,
}

/// An answer over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error code of the body.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }
}

/// The command, without anything of the surrounding environment.
pub(crate) fn tollgate(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.current_dir(folder).env("NO_COLOR", "1");
    // Whoever runs the tests may have a data folder at home.
    command.env("XDG_DATA_HOME", folder.join("no-home"));
    for name in ["TOLLGATE_API_KEY", "TOLLGATE_DATA", "TOLLGATE_URL", "TOLLGATE_CONFIG"] {
        command.env_remove(name);
    }
    command
}

/// Runs a command to its end, with a limit: a test never hangs.
pub(crate) fn finish(mut command: Command, stdin: &[u8]) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let id = child.id();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if wait.recv_timeout(PATIENCE).is_err() {
            signal(id, "KILL");
        }
    });
    let output = child.wait_with_output().unwrap();
    let _ = done.send(());
    watchdog.join().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Sends a signal to a process that this test started.
pub(crate) fn signal(id: u32, name: &str) {
    let _ = Command::new("kill").args([&format!("-{name}"), &id.to_string()]).status();
}

impl Daemon {
    /// A gate in a new folder.
    pub(crate) fn start() -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), &[])
    }

    /// A gate with a configuration.
    pub(crate) fn configured(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tollgate.toml"), config).unwrap();
        Self::start_in(Arc::new(folder), &[])
    }

    /// A gate in this folder, with these arguments beside the usual ones.
    pub(crate) fn start_in(folder: Arc<TempDir>, args: &[&str]) -> Self {
        let mut command = tollgate(folder.path());
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(args);
        Self::spawned(folder, command)
    }

    pub(crate) fn spawned(folder: Arc<TempDir>, mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (printed, logged) = (Arc::default(), Arc::default());
        let lines = gather(child.stdout.take().unwrap(), &printed);
        gather(child.stderr.take().unwrap(), &logged);
        let end = Instant::now() + PATIENCE;
        let url = loop {
            let line = lines.recv_timeout(end.saturating_duration_since(Instant::now()));
            let Ok(line) = line else {
                let log = logged.lock().unwrap().clone();
                let _ = child.kill();
                panic!("the gate did not start: {log}");
            };
            if let Some(url) = line.strip_prefix("listening on http") {
                break format!("http{url}");
            }
        };
        Self { child, url, folder, printed, logged }
    }

    /// What it wrote to its standard output.
    pub(crate) fn printed(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    /// What it wrote to its standard error.
    pub(crate) fn logged(&self) -> String {
        self.logged.lock().unwrap().clone()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join(".tollgate")
    }

    /// The admin key.
    pub(crate) fn admin(&self) -> String {
        std::fs::read_to_string(self.data().join("admin.key")).unwrap().trim().to_owned()
    }

    pub(crate) fn address(&self) -> String {
        self.url.trim_start_matches("http://").to_owned()
    }

    /// Runs a command against this gate.
    pub(crate) fn cli(&self, args: &[&str]) -> Ran {
        self.cli_with(args, b"")
    }

    pub(crate) fn cli_with(&self, args: &[&str], stdin: &[u8]) -> Ran {
        let mut command = tollgate(self.folder.path());
        command.args(args);
        finish(command, stdin)
    }

    /// Sends bytes as they are, and reads until the other side closes.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        // A server that refuses early may close before all is sent.
        let _ = stream.write_all(bytes);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        parse(&String::from_utf8_lossy(&text))
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A request with these headers.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let has_host = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !has_host {
            text.push_str(&format!("Host: {}\r\n", self.address()));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        self.raw(format!("{text}\r\n{body}").as_bytes())
    }

    pub(crate) fn get(&self, path: &str, key: Option<&str>) -> Answer {
        let bearer = key.map(|key| format!("Bearer {key}"));
        let headers: Vec<(&str, &str)> =
            bearer.iter().map(|value| ("Authorization", value.as_str())).collect();
        self.request("GET", path, &headers, "")
    }

    pub(crate) fn put(&self, path: &str, key: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {key}");
        let headers = [("Content-Type", "application/json"), ("Authorization", bearer.as_str())];
        self.request("PUT", path, &headers, &body.to_string())
    }

    pub(crate) fn post(&self, path: &str, key: Option<&str>, body: &str) -> Answer {
        let bearer = key.map(|key| format!("Bearer {key}"));
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(bearer.iter().map(|value| ("Authorization", value.as_str())));
        self.request("POST", path, &headers, body)
    }

    /// Calls a tool.
    pub(crate) fn call(&self, tool: &str, key: &str, input: &str) -> Answer {
        self.post(&format!("/v1/tools/{tool}/call"), Some(key), &format!("{{\"input\":{input}}}"))
    }

    /// Makes a key, and gives its id and its text.
    pub(crate) fn new_key(&self, body: &Value) -> (String, String) {
        let made = self.post("/v1/keys", Some(&self.admin()), &body.to_string());
        assert_eq!(made.status, 201, "{made:?}");
        let made = made.json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&made["key"]["id"]), text(&made["secret"]))
    }

    /// Ends it at once, as a power switch would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        signal(self.child.id(), "TERM");
        self.wait()
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "the gate does not stop: {}", self.logged());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts again in the same folder.
    pub(crate) fn again(mut self) -> Self {
        if self.child.try_wait().unwrap().is_none() {
            self.stop();
        }
        Self::start_in(Arc::clone(&self.folder), &[])
    }

    /// Waits until something is so.
    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < end, "waited in vain until {what}: {}", self.logged());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Every event of the ledger, in order.
    pub(crate) fn events(&self) -> Vec<Value> {
        let export = self.cli(&["ledger", "export", "--data", ".tollgate"]);
        assert_eq!(export.code, 0, "{}", export.err);
        export.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Gathers what a process writes, and passes each line on.
pub(crate) fn gather(
    from: impl Read + Send + 'static,
    into: &Arc<Mutex<String>>,
) -> std::sync::mpsc::Receiver<String> {
    let (send, lines) = std::sync::mpsc::channel();
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            into.lock().unwrap().push_str(&format!("{line}\n"));
            let _ = send.send(line);
        }
    });
    lines
}

pub(crate) fn parse(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { unchunked(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { break };
        whole.push_str(rest.get(..size).unwrap_or(rest));
        body = rest.get(size + 2..).unwrap_or("");
        if size == 0 {
            break;
        }
    }
    whole
}
