//! The daemon's side: keeps a launcher, hands it runs, reads what comes out. Dropping anything here closes a
//! socket, and the other side ends what belonged to it.

use std::{
    ffi::OsString,
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream as StdUnixStream,
    },
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use rustix::{
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
    pipe::{PipeFlags, pipe_with},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    },
    sync::Mutex,
};
use tokio_util::sync::CancellationToken;

use crate::{
    error::{LauncherFailed, NotStarted, SandboxError, Unavailable},
    grant::{Ended, Exit, Finished, Grant, Output, Tier, TierChoice, Usage},
    launcher::{self, CANCEL, FLOOD, THERE},
    plan::{Layers, Plan, Report as RunReport, Targets, frame_length, write_frame},
    selftest::Report,
};

/// A stream may be this many times longer than what is kept of it before its writer is ended.
const FLOOD_FACTOR: u64 = 256;
/// However much is kept of it, a stream that is longer than this and than what is kept is a flood.
const MOST_OF_A_STREAM: u64 = 64 << 20;
/// A launcher that has not answered by then never will.
const PATIENCE: Duration = Duration::from_secs(60);
/// The launcher's environment is this one variable, so that a leak of it can be noticed.
pub(crate) const VARIABLE: &str = "TOLLGATE_SANDBOX_LAUNCHER";

/// When a machine that could not give the guarantees is asked again.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// How to sandbox.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Which tier.
    pub tier: TierChoice,
    /// What is started as the launcher.
    pub launcher: LauncherProgram,
}

/// What is started as the launcher. Unless said otherwise, this very binary with
/// [`launcher::MARKER`] as its first argument: its `main` must ask [`launcher::wanted`].
#[derive(Debug, Clone)]
pub struct LauncherProgram {
    /// The binary.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// What its own runtime must be told. Nothing of it reaches a confined program.
    pub environment: Vec<(OsString, OsString)>,
}

impl Default for LauncherProgram {
    fn default() -> Self {
        // Not the path by which it was found: that may be another file by now.
        Self {
            program: "/proc/self/exe".into(),
            arguments: vec![launcher::MARKER.into()],
            environment: Vec::new(),
        }
    }
}

/// Runs programs confined. Clones share one launcher.
#[derive(Debug, Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: Config,
    launcher: Mutex<Option<Arc<UnixStream>>>,
    chosen: Mutex<Option<(Result<Tier, Unavailable>, Instant)>>,
}

/// What else goes into a plan.
#[derive(Debug, Default, Clone)]
pub(crate) struct Extra {
    pub(crate) probe: Option<Targets>,
    #[cfg(feature = "weaken")]
    pub(crate) weaken: Vec<crate::plan::Weaken>,
}

impl Sandbox {
    /// A sandbox. Nothing is started before it is needed.
    pub fn start(config: Config) -> Self {
        let inner = Inner { config, launcher: Mutex::new(None), chosen: Mutex::new(None) };
        Self { inner: Arc::new(inner) }
    }

    /// The tier that is used: the best one whose self-test holds in everything. Tried once and remembered; where none
    /// holds it is tried again after a while, since a machine may have been busy.
    pub async fn tier(&self) -> Result<Tier, SandboxError> {
        let mut chosen = self.inner.chosen.lock().await;
        match &*chosen {
            Some((Ok(tier), _)) => return Ok(*tier),
            Some((Err(why), tried)) if tried.elapsed() < TRY_AGAIN => {
                return Err(why.clone().into());
            }
            _ => {}
        }
        let found = self.choose().await;
        *chosen = Some((found.clone(), Instant::now()));
        found.map_err(Into::into)
    }

    async fn choose(&self) -> Result<Tier, Unavailable> {
        let tiers: &[Tier] = match self.inner.config.tier {
            TierChoice::Auto => &[Tier::Full, Tier::Landlock],
            TierChoice::Full => &[Tier::Full],
            TierChoice::Landlock => &[Tier::Landlock],
        };
        let mut reasons = Vec::new();
        for tier in tiers {
            let report = self.self_test(*tier).await;
            if report.holds() {
                return Ok(*tier);
            }
            reasons.extend(report.failures().map(|failure| format!("{tier:?}: {failure}")));
        }
        tracing::warn!(reasons = reasons.join("; "), "nothing can be sandboxed on this machine");
        Err(Unavailable { reasons })
    }

    /// Tries every escape of a tier, for real.
    pub async fn self_test(&self, tier: Tier) -> Report {
        crate::selftest::run(self, tier, &Extra::default()).await
    }

    /// The self-test of a tier with protections switched off, to show that it notices.
    #[cfg(feature = "weaken")]
    pub async fn weakened_self_test(&self, tier: Tier, weaken: Vec<crate::plan::Weaken>) -> Report {
        crate::selftest::run(self, tier, &Extra { probe: None, weaken }).await
    }

    /// Runs a program to its end, and gives what it wrote. When this comes back nothing of it is left. Dropping
    /// it ends the program as well, a moment later.
    pub async fn run(
        &self,
        grant: &Grant,
        argv: &[String],
        cancel: CancellationToken,
    ) -> Result<Finished, SandboxError> {
        let tier = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(never_started()),
            tier = self.tier() => tier?,
        };
        self.run_in(tier, grant, argv, cancel, &Extra::default())
            .await
            .map(|(finished, _)| finished)
    }

    /// Starts a program, for who wants to talk with it. It is ended when the result is dropped.
    pub async fn spawn(&self, grant: &Grant, argv: &[String]) -> Result<Started, SandboxError> {
        let tier = self.tier().await?;
        let (stdin, ours) = pipe_with(PipeFlags::CLOEXEC).map_err(io_failed("cannot be used"))?;
        let mut started = self.begin(tier, grant, argv, &Extra::default(), stdin).await?;
        let ours =
            pipe::Sender::from_owned_fd(ours).map_err(LauncherFailed::when("cannot be used"))?;
        started.stdin = Some(ours);
        Ok(started)
    }

    pub(crate) async fn run_in(
        &self,
        tier: Tier,
        grant: &Grant,
        argv: &[String],
        cancel: CancellationToken,
        extra: &Extra,
    ) -> Result<(Finished, Layers), SandboxError> {
        let began = Instant::now();
        let nothing =
            std::fs::File::open("/dev/null").map_err(LauncherFailed::when("cannot be used"))?;
        let started = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok((never_started(), Layers::default())),
            started = self.begin(tier, grant, argv, extra, nothing.into()) => started?,
        };
        let Started { stdin: _, stdout, stderr, stop, report, layers } = started;
        let keep = grant.limits.output_bytes;
        let flood = CancellationToken::new();
        let ended = async {
            let over = finished(report);
            tokio::pin!(over);
            tokio::select! {
                over = &mut over => return over,
                () = cancel.cancelled() => stop.say(CANCEL).await,
                () = flood.cancelled() => stop.say(FLOOD).await,
            }
            over.await
        };
        let (stdout, stderr, ended) =
            tokio::join!(collect(stdout, keep, &flood), collect(stderr, keep, &flood), ended);
        let (exit, ended, usage) = ended?;
        let took = began.elapsed();
        Ok((Finished { exit, ended, stdout, stderr, usage, took }, layers))
    }

    async fn begin(
        &self,
        tier: Tier,
        grant: &Grant,
        argv: &[String],
        extra: &Extra,
        stdin: OwnedFd,
    ) -> Result<Started, SandboxError> {
        let plan = Plan {
            tier,
            grant: grant.clone(),
            argv: argv.to_vec(),
            probe: extra.probe.clone(),
            #[cfg(feature = "weaken")]
            weaken: extra.weaken.clone(),
        };
        let mut frame = Vec::new();
        write_frame(&mut frame, &plan).map_err(LauncherFailed::when("takes no such plan"))?;
        let unusable = io_failed("cannot be used");
        let (stdout, out) = pipe_with(PipeFlags::CLOEXEC).map_err(&unusable)?;
        let (stderr, err) = pipe_with(PipeFlags::CLOEXEC).map_err(&unusable)?;
        let (mut read, write) = self.monitor(&frame, &[stdin, out, err]).await?;
        let failed = LauncherFailed::when("is gone");
        match read_report(&mut read).await? {
            RunReport::Started { layers } => Ok(Started {
                stdin: None,
                stdout: pipe::Receiver::from_owned_fd(stdout).map_err(&failed)?,
                stderr: pipe::Receiver::from_owned_fd(stderr).map_err(&failed)?,
                stop: Stop(write),
                report: read,
                layers,
            }),
            RunReport::Failed { stage, problem } => Err(NotStarted { stage, problem }.into()),
            RunReport::Finished { .. } => {
                Err(failed(io::Error::other("it told of an end before a beginning")))
            }
        }
    }

    /// Has a launcher make a monitor, which holds the streams of the program. A launcher may die any time; a monitor
    /// that never said a word was never there, and another launcher can be asked.
    async fn monitor(
        &self,
        plan: &[u8],
        streams: &[OwnedFd; 3],
    ) -> Result<(OwnedReadHalf, OwnedWriteHalf), SandboxError> {
        let mut problem = io::Error::from(io::ErrorKind::NotConnected);
        for _ in 0..3 {
            let launcher = self.launcher().await?;
            match tokio::time::timeout(PATIENCE, hand_over(&launcher, plan, streams)).await {
                Ok(Ok(run)) => return Ok(run.into_split()),
                Ok(Err(error)) => problem = error,
                // Somebody may still take it: whoever does sees that nobody waits.
                Err(_) => {
                    return Err(LauncherFailed::when("does not answer")(
                        io::ErrorKind::TimedOut.into(),
                    ));
                }
            }
            self.forget(&launcher).await;
        }
        Err(LauncherFailed::when("is gone")(problem))
    }

    async fn forget(&self, dead: &Arc<UnixStream>) {
        let mut launcher = self.inner.launcher.lock().await;
        if launcher.as_ref().is_some_and(|known| Arc::ptr_eq(known, dead)) {
            *launcher = None;
        }
    }

    async fn launcher(&self) -> Result<Arc<UnixStream>, SandboxError> {
        let mut launcher = self.inner.launcher.lock().await;
        if let Some(known) = &*launcher {
            // It never says anything: what can be read is its end.
            match known.try_read(&mut [0; 1]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(known.clone()),
                _ => tracing::warn!("the sandbox's launcher died, and is started again"),
            }
        }
        let started = Arc::new(start_launcher(&self.inner.config.launcher)?);
        *launcher = Some(started.clone());
        Ok(started)
    }
}

fn start_launcher(launcher: &LauncherProgram) -> Result<UnixStream, SandboxError> {
    let failed = LauncherFailed::when("cannot be started");
    let (ours, theirs) = StdUnixStream::pair().map_err(&failed)?;
    // Nobody waits for it by name: the runtime reaps it, and its socket says when it is gone.
    tokio::process::Command::new(&launcher.program)
        .args(&launcher.arguments)
        .env_clear()
        .envs(launcher.environment.iter().map(|(name, value)| (name, value)))
        .env(VARIABLE, "1")
        .current_dir("/")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(&failed)?;
    ours.set_nonblocking(true).map_err(&failed)?;
    UnixStream::from_std(ours).map_err(failed)
}

/// Hands over the plan and the streams, and waits for a word of whoever has them now.
async fn hand_over(
    launcher: &UnixStream,
    plan: &[u8],
    streams: &[OwnedFd; 3],
) -> io::Result<UnixStream> {
    let (ours, theirs) = StdUnixStream::pair()?;
    launcher
        .async_io(Interest::WRITABLE, || {
            let [stdin, stdout, stderr] = streams.each_ref().map(AsFd::as_fd);
            let fds = [theirs.as_fd(), stdin, stdout, stderr];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
            let sent =
                sendmsg(launcher, &[IoSlice::new(b"r")], &mut ancillary, SendFlags::NOSIGNAL);
            sent.map(drop).map_err(Into::into)
        })
        .await?;
    // Who keeps this end would wait for a dead one.
    drop(theirs);
    ours.set_nonblocking(true)?;
    let mut run = UnixStream::from_std(ours)?;
    // Not after the other side's word: each wait for a word is a change of processes.
    run.write_all(plan).await?;
    match run.read_u8().await? {
        THERE => Ok(run),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A program that runs. Dropping it ends the program and everything that it started.
#[derive(Debug)]
pub struct Started {
    /// What the program reads; closing it is the end of its input.
    pub stdin: Option<pipe::Sender>,
    /// What the program writes. It is the reader's business to bound it.
    pub stdout: pipe::Receiver,
    /// What the program complains about.
    pub stderr: pipe::Receiver,
    /// Ends the program.
    pub stop: Stop,
    report: OwnedReadHalf,
    layers: Layers,
}

impl Started {
    /// Waits until the program and everything that it started are gone. Its output must be read by somebody
    /// meanwhile, or it may wait for that.
    pub async fn wait(&mut self) -> Result<(Exit, Ended, Usage), SandboxError> {
        finished(&mut self.report).await
    }
}

/// Ends a program, when told to or when dropped.
#[derive(Debug)]
pub struct Stop(OwnedWriteHalf);

impl Stop {
    /// Ends the program and everything that it started. [`Started::wait`] says when they are gone.
    pub fn kill(&self) {
        let _ = self.0.try_write(&[CANCEL]);
    }

    async fn say(&self, why: u8) {
        // One byte into an empty socket; if it does not go through, nobody is there to be ended.
        if self.0.writable().await.is_ok() {
            let _ = self.0.try_write(&[why]);
        }
    }
}

/// Reads a stream to its end and keeps the beginning.
async fn collect(mut stream: pipe::Receiver, keep: u64, flood: &CancellationToken) -> Output {
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    let most = (keep as u64).saturating_mul(FLOOD_FACTOR).min(MOST_OF_A_STREAM).max(keep as u64);
    let mut kept = BytesMut::new();
    let mut total = 0_u64;
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        total += read as u64;
        let room = keep.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(buffer.get(..room).unwrap_or_default());
        if total > most {
            flood.cancel();
        }
    }
    Output { bytes: kept.freeze(), total }
}

async fn finished(
    mut report: impl std::borrow::BorrowMut<OwnedReadHalf>,
) -> Result<(Exit, Ended, Usage), SandboxError> {
    match read_report(report.borrow_mut()).await? {
        RunReport::Finished { exit, ended, usage } => Ok((exit, ended, usage)),
        RunReport::Failed { stage, problem } => Err(NotStarted { stage, problem }.into()),
        RunReport::Started { .. } => {
            Err(LauncherFailed::when("is gone")(io::Error::other("it began twice")))
        }
    }
}

async fn read_report(from: &mut OwnedReadHalf) -> Result<RunReport, SandboxError> {
    let failed = LauncherFailed::when("is gone");
    let mut length = [0; 4];
    from.read_exact(&mut length).await.map_err(&failed)?;
    let mut body = vec![0; frame_length(length).map_err(&failed)?];
    from.read_exact(&mut body).await.map_err(&failed)?;
    serde_json::from_slice(&body).map_err(|error| failed(error.into()))
}

fn io_failed(doing: &'static str) -> impl Fn(rustix::io::Errno) -> SandboxError {
    move |error| LauncherFailed::when(doing)(error.into())
}

/// What is told of a run that was cancelled before it began.
fn never_started() -> Finished {
    Finished {
        exit: Exit::Signal(9),
        ended: Ended::Cancelled,
        stdout: Output::default(),
        stderr: Output::default(),
        usage: Usage::default(),
        took: Duration::ZERO,
    }
}
