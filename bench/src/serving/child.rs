//! The servers as processes of their own: starting them, looking at them from outside, ending them.

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::load::{Target, once};

/// A server that runs. It is killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// When it was started.
    pub(crate) since: Instant,
}

impl Server {
    /// Starts the product on this data folder.
    pub(crate) fn tollgate(data: &Path) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(product()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        // Nothing of the surroundings is to configure it.
        command.current_dir(data.parent().unwrap_or(data));
        Self::start(command)
    }

    /// Starts the server to compare with, which answers what is in these files.
    pub(crate) fn bare(call: &Path, manifest: &Path) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(env::current_exe()?);
        command.arg("bare-server").args([call, manifest]);
        Self::start(command)
    }

    /// Starts the server to compare with, which answers an intent with what is in the file that has the
    /// name of its work.
    pub(crate) fn bare_intents(answers: &Path) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(env::current_exe()?);
        command.arg("bare-intents").arg(answers);
        Self::start(command)
    }

    fn start(mut command: Command) -> Result<Self, Box<dyn Error>> {
        let since = Instant::now();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = child.stdout.take().ok_or("a child has no output")?;
        // Killed from here on, should anything go wrong.
        let mut server = Self { child, address: ([0, 0, 0, 0], 0).into(), since };
        for line in BufReader::new(output).lines() {
            if let Some(address) = line?.strip_prefix("listening on http://") {
                server.address = address.parse()?;
                return Ok(server);
            }
        }
        Err("a server ended before it listened".into())
    }

    /// How long it took from its start until it has answered this request.
    pub(crate) fn first_answer(&self, request: &[u8]) -> Result<Duration, Box<dyn Error>> {
        once(&self.target(request.to_vec()))?;
        Ok(self.since.elapsed())
    }

    pub(crate) fn target(&self, request: Vec<u8>) -> Target {
        Target::new(self.address, request)
    }

    /// How much time of the processors it has used.
    pub(crate) fn cpu(&self) -> Result<Duration, Box<dyn Error>> {
        cpu_of(&self.child.id().to_string())
    }

    /// The same, by the names of its threads.
    pub(crate) fn cpu_by_thread(&self) -> Result<BTreeMap<String, Duration>, Box<dyn Error>> {
        let mut all = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let task = task?.path();
            let name = fs::read_to_string(task.join("comm"))?.trim().to_owned();
            // The first number is the time on a processor, in nanoseconds.
            let times = fs::read_to_string(task.join("schedstat"))?;
            let ns = times.split_whitespace().next().ok_or("a thread without times")?.parse()?;
            *all.entry(name).or_default() += Duration::from_nanos(ns);
        }
        Ok(all)
    }
    /// A number of kibibytes from what the system says of it, such as `VmRSS`.
    pub(crate) fn memory(&self, name: &str) -> Result<u64, Box<dyn Error>> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|line| line.split_whitespace().next());
        Ok(number.ok_or("the system does not say how much memory it uses")?.parse()?)
    }

    /// Asks it to stop and waits until it has.
    pub(crate) fn stop(mut self) -> Result<(), Box<dyn Error>> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).ok_or("a child without an id")?;
        kill_process(pid, Signal::TERM)?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("it stopped with {status}").into()) }
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(mut self) -> Result<(), Box<dyn Error>> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How much time of the processors a process has used; `self` is this one.
pub(crate) fn cpu_of(process: &str) -> Result<Duration, Box<dyn Error>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // Behind the name, which is in parentheses, the times are the 12th and 13th.
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks = behind.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks: u64 = ticks.sum::<Result<_, _>>()?;
    // Linux counts them in hundredths of a second, whatever the machine.
    Ok(Duration::from_millis(ticks * 10))
}

/// The product's binary: what the environment says, or what was built beside this one.
fn product() -> Result<PathBuf, Box<dyn Error>> {
    if let Some(said) = env::var_os("TOLLGATE_BINARY") {
        return Ok(fs::canonicalize(said)?);
    }
    let beside = env::current_exe()?.with_file_name("tollgate");
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/tollgate");
    let found = [beside, usual].into_iter().find(|file| file.exists());
    found.ok_or_else(|| "build the product first: cargo build --release".into())
}

/// The admin key that a gate made in this folder.
pub(crate) fn key(data: &Path) -> Result<String, Box<dyn Error>> {
    Ok(fs::read_to_string(data.join("admin.key"))?.trim().to_owned())
}

/// A folder for data, on the disk where this binary is, which goes away.
pub(crate) fn folder() -> Result<tempfile::TempDir, Box<dyn Error>> {
    let binary = env::current_exe()?;
    let place = binary.parent().ok_or("this binary is nowhere")?;
    Ok(tempfile::Builder::new().prefix("bench-data-").tempdir_in(place)?)
}

/// `GET /health`.
pub(crate) fn health() -> Vec<u8> {
    b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".to_vec()
}

/// `GET /api/contracts/tools`, as somebody on this machine asks for it without a key.
pub(crate) fn manifest() -> Vec<u8> {
    b"GET /api/contracts/tools HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".to_vec()
}

/// A call of `system.time` with this key.
pub(crate) fn call(key: &str) -> Vec<u8> {
    let body = r#"{"input":{}}"#;
    let length = body.len();
    format!(
        "POST /v1/tools/system.time/call HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
