//! Agents in tests: a model that says what a script says, over HTTP as a real one, and a folder to work in.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    Ran,
    daemon::{PATIENCE, finish, gather, parse, tollgate},
};

/// A fake model that serves. It ends with its test.
pub(crate) struct Fake {
    child: Child,
    pub(crate) url: String,
    _script: TempDir,
}

impl Fake {
    pub(crate) fn start(script: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("script.json"), script.to_string()).unwrap();
        let mut command = tollgate(folder.path());
        command.args(["fake-model", "script.json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = gather(child.stdout.take().unwrap(), &Arc::new(Mutex::default()));
        let line = lines.recv_timeout(PATIENCE).expect("the fake model did not start");
        let url = line.strip_prefix("listening on ").unwrap().to_owned();
        Self { child, url, _script: folder }
    }

    /// A fake model that gives these answers, in order.
    pub(crate) fn saying(answers: &[&str]) -> Self {
        let replies: Vec<Value> = answers.iter().map(|text| json!({"content": text})).collect();
        Self::start(&json!({"replies": replies}))
    }

    fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches("/v1")
    }

    /// What it was asked, in order.
    pub(crate) fn requests(&self) -> Vec<Value> {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let address = self.address();
        let request =
            format!("GET /requests HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        parse(&text).json().as_array().unwrap().clone()
    }

    /// The questions among them.
    pub(crate) fn chats(&self) -> Vec<Value> {
        let is_chat = |seen: &Value| seen["path"] == "/v1/chat/completions";
        self.requests().into_iter().filter(is_chat).collect()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a model writes that wants these calls.
pub(crate) fn calls(wanted: &[(&str, Value)]) -> String {
    let items: Vec<Value> = wanted
        .iter()
        .enumerate()
        .map(|(at, (tool, args))| json!({"id": format!("c{at}"), "tool": tool, "args": args}))
        .collect();
    format!("<<<TOOL_CALLS_JSON>>>{}<<<END_TOOL_CALLS_JSON>>>", json!(items))
}

/// What a model writes that notes this.
pub(crate) fn notes(patch: &Value) -> String {
    format!("<<<NOTES_JSON>>>{patch}<<<END_NOTES_JSON>>>")
}

/// A folder to work in, and beside it a home without anything in it.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work", "home"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Where the data goes that nobody says anything of.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("home/tollgate")
    }

    /// A command that is typed in the folder to work in.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = tollgate(&self.work());
        command.env("XDG_DATA_HOME", self.folder.path().join("home")).args(args);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        finish(self.command(args), b"")
    }

    pub(crate) fn run_with(&self, args: &[&str], stdin: &str) -> Ran {
        finish(self.command(args), stdin.as_bytes())
    }

    /// Runs a command that must work, and gives what it says.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let ran = self.run(&[args, &["--json"]].concat());
        assert_eq!(ran.code, 0, "{args:?}: {}{}", ran.out, ran.err);
        ran.json()["data"].clone()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.work().join(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work().join(name)).unwrap_or_default()
    }
}

/// A command that runs beside the test. It ends with it.
pub(crate) struct Beside {
    pub(crate) child: Child,
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
    keepers: Vec<JoinHandle<()>>,
}

impl Beside {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null());
        Self::spawned(command)
    }

    /// One that something is typed to.
    pub(crate) fn typed(mut command: Command) -> Self {
        command.stdin(Stdio::piped());
        Self::spawned(command)
    }

    fn spawned(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (Arc::default(), Arc::default());
        let keepers = vec![
            keep(child.stdout.take().unwrap(), &out),
            keep(child.stderr.take().unwrap(), &err),
        ];
        Self { child, out, err, keepers }
    }

    /// What it wrote to either.
    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.out(), self.err())
    }

    pub(crate) fn out(&self) -> String {
        self.out.lock().unwrap().clone()
    }

    pub(crate) fn err(&self) -> String {
        self.err.lock().unwrap().clone()
    }

    /// Waits until it has ended, and gives its exit code; less than nothing where a signal ended it.
    pub(crate) fn end(&mut self) -> i32 {
        let mut code = None;
        until("the command ends", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        // Its last words may come behind its end.
        self.keepers.drain(..).for_each(|keeper| keeper.join().unwrap());
        code.unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps what a process writes, as soon as it does: a question has no line end.
fn keep(mut from: impl Read + Send + 'static, into: &Arc<Mutex<String>>) -> JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(count) = from.read(&mut piece)
            && count > 0
        {
            bytes.extend_from_slice(&piece[..count]);
            *into.lock().unwrap() = String::from_utf8_lossy(&bytes).into_owned();
        }
    })
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
