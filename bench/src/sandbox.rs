//! What it costs to run a command confined: `echo` in the sandbox, bare, and under bubblewrap with the same mounts.
//!
//! Bubblewrap gives less here (no Landlock, no filter of system calls, no bound of memory, disk or time), so that the
//! ratio says what the whole costs against what people use for a part of it.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use tokio_util::sync::CancellationToken;
use tollgate_sandbox::{Config, Exit, Grant, Limits, Network, Sandbox, elf};

use crate::measure::quantile;

/// How often each is run.
const RUNS: usize = 200;
/// Before anything counts.
const WARM: usize = 10;

pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    println!("\nsandbox: `echo hello`, {RUNS} interleaved runs, milliseconds");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let (grant, argv) = grant(folder.path())?;
    let sandbox = Sandbox::start(Config::default());
    let began = Instant::now();
    let tier = runtime.block_on(sandbox.tier())?;
    println!("tier {tier:?}, self-tested in {:.0} ms", began.elapsed().as_secs_f64() * 1e3);
    let confined = || -> Result<(), Box<dyn Error>> {
        let run = sandbox.run(&grant, &argv, CancellationToken::new());
        let finished = runtime.block_on(run)?;
        match (finished.exit, finished.stdout.bytes.as_ref()) {
            (Exit::Code(0), b"hello\n") => Ok(()),
            other => Err(format!("the sandbox gave {other:?}").into()),
        }
    };
    let program = argv.first().cloned().unwrap_or_default();
    let bare = || said(Command::new(&program).arg("hello"));
    let wrapped = || said(&mut bubblewrap(folder.path(), &program, false));
    let leaner = || said(&mut bubblewrap(folder.path(), &program, true));
    let contenders: [(&str, &dyn Fn() -> Result<(), Box<dyn Error>>); 4] = [
        ("bare", &bare),
        ("bubblewrap", &wrapped),
        ("bubblewrap, no init", &leaner),
        ("sandbox", &confined),
    ];
    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 0..WARM + RUNS {
        for ((_, run), times) in contenders.iter().zip(&mut times) {
            let began = Instant::now();
            run()?;
            if round >= WARM {
                times.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    println!("{:<20} {:>8} {:>8}", "", "median", "p95");
    for ((name, _), times) in contenders.iter().zip(&times) {
        println!(
            "{name:<20} {:>8.2} {:>8.2}",
            quantile(times.clone(), 0.5),
            quantile(times.clone(), 0.95)
        );
    }
    let [bare, wrapped, leaner, confined] = &times;
    for (against, wrapped) in [("bubblewrap", wrapped), ("bubblewrap, no init", leaner)] {
        for (name, part) in [("median", 0.5), ("p95", 0.95)] {
            let at = |times: &Vec<f64>| quantile(times.clone(), part);
            let added = (at(confined) - at(bare)) / (at(wrapped) - at(bare));
            println!("added cost against {against}, {name}: {added:.2}");
        }
    }
    Ok(())
}

fn grant(root: &Path) -> Result<(Grant, Vec<String>), Box<dyn Error>> {
    let echo = fs::canonicalize("/bin/echo")?;
    let mut execute = vec![echo.clone()];
    if let Some(loader) = elf::interpreter(&echo)? {
        execute.push(fs::canonicalize(loader)?);
    }
    let grant = Grant {
        root: root.to_owned(),
        writable: true,
        read_only: SYSTEM.iter().map(PathBuf::from).collect(),
        execute,
        environment: vec![("LANG".to_owned(), "C.UTF-8".to_owned())],
        limits: Limits::default(),
        network: Network::None,
    };
    Ok((grant, vec![echo.display().to_string(), "hello".to_owned()]))
}

const SYSTEM: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];

/// With `no_init` the program is the first process itself, and nobody reaps what it leaves: less than the sandbox does.
fn bubblewrap(root: &Path, program: &str, no_init: bool) -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]);
    if no_init {
        command.arg("--as-pid-1");
    }
    command.args(["--ro-bind", "/usr", "/usr"]);
    for link in ["bin", "sbin", "lib", "lib64"] {
        command.arg("--symlink").arg(format!("usr/{link}")).arg(format!("/{link}"));
    }
    for file in ["/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives"] {
        command.args(["--ro-bind-try", file, file]);
    }
    for device in ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"] {
        command.args(["--dev-bind", device, device]);
    }
    command.arg("--bind").arg(root).arg("/workspace").args(["--chdir", "/workspace"]);
    command.args(["--cap-drop", "ALL", "--", program, "hello"]);
    command
}

fn said(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() && output.stdout == b"hello\n" {
        return Ok(());
    }
    Err(format!("{command:?} gave {output:?}").into())
}
