//! `tollgate doctor`: is everything in order, and if not, what to do.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;
use serde_json::{Value, json};
use tollgate_gate::check_kept;
use tollgate_ledger::Reader;
use tollgate_sandbox::Tier;
use tollgate_tools::shell::{Shell, ShellConfig};

use super::own_key::{AGENT, CLI};
use crate::{
    agent_folders,
    cli::DoctorArgs,
    client::{Client, wait},
    config::{Config, USUAL_DATA},
    exit::Exit,
    output::{Failure, Output, wrap},
    part::Part,
    place::{ADMIN_KEY, GateArgs},
};

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Good,
    Note,
    Bad,
}

impl Check {
    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Good, found: found.into(), advice: None }
    }

    fn note(name: &'static str, found: impl Into<String>, advice: &str) -> Self {
        Self { name, state: State::Note, found: found.into(), advice: Some(advice.to_owned()) }
    }

    fn bad(name: &'static str, found: impl Into<String>, advice: &str) -> Self {
        Self { name, state: State::Bad, found: found.into(), advice: Some(advice.to_owned()) }
    }
}

pub(crate) fn run(args: &DoctorArgs, output: &Output) -> Result<Exit, Failure> {
    let mut checks = vec![Check::good("version", env!("CARGO_PKG_VERSION"))];
    let agents = agent_folders::here().filter(|_| args.config.is_none());
    let config = match &agents {
        Some(_) => Ok((Config::default(), None)),
        None => Config::find(args.config.as_deref()),
    };
    match agents.filter(|_| agent_folders::has_usual_files()) {
        Some(why) => {
            let found = format!("{why}: what stands in this folder is left out");
            checks.push(Check::note("configuration", found, "name your own with --config"));
        }
        None => checks.push(configuration(&config)),
    }
    // What was named here decides; else what any command would find.
    let named = args.config.is_some().then(|| config.as_ref().ok()).flatten();
    let named = named.map(|(config, _)| config.data());
    let data = args.gate.data.data.clone().or(named).or_else(|| args.gate.data.folder().ok());
    let data = data.unwrap_or_else(|| USUAL_DATA.into());
    let mut gate_args = args.gate.clone();
    gate_args.data.data = Some(data.clone());
    let is_there = data.is_dir();
    if is_there {
        checks.push(Check::good("data folder", data.display().to_string()));
        checks.push(private(&data));
        checks.push(ledger(&data));
        checks.push(key_file("admin key", &data.join(ADMIN_KEY), true));
        for (name, own) in [("agent key", AGENT), ("cli key", CLI)] {
            if data.join(own.file).exists() {
                checks.push(key_file(name, &data.join(own.file), false));
            }
        }
    } else {
        checks.push(Check::note(
            "data folder",
            format!("{} is not there yet", data.display()),
            "`tollgate serve` makes it; --data names another",
        ));
    }
    let shell = config.as_ref().map(|(config, _)| config.shell.clone()).unwrap_or_default();
    checks.extend(confined(shell, data.clone()));
    checks.extend(gate(&gate_args));
    let bad = checks.iter().any(|check| check.state == State::Bad);
    let written = output.success(&json!({"healthy": !bad, "checks": checks}), || told(&checks));
    Ok(if bad { Exit::Failed } else { written })
}

fn configuration(found: &Result<(Config, Option<PathBuf>), Failure>) -> Check {
    match found {
        Ok((_, Some(file))) => Check::good("configuration", format!("{} loads", file.display())),
        Ok((_, None)) => Check::good("configuration", "none; everything is as usual"),
        Err(failure) => Check::bad(
            "configuration",
            failure.to_string(),
            "mend the file; a gate that runs keeps its old one",
        ),
    }
}

#[cfg(unix)]
fn open_to_others(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|found| found.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn open_to_others(_: &Path) -> bool {
    false
}

fn private(data: &Path) -> Check {
    if open_to_others(data) {
        let advice = format!("chmod 700 {}", data.display());
        return Check::note("folder's mode", "others may look into the data folder", &advice);
    }
    Check::good("folder's mode", "for its owner alone")
}

fn key_file(name: &'static str, file: &Path, needed: bool) -> Check {
    if !file.exists() {
        let advice = "set TOLLGATE_API_KEY, or restart with `tollgate serve --new-admin-key`";
        let found = format!("{} is not there", file.display());
        return if needed { Check::note(name, found, advice) } else { Check::good(name, found) };
    }
    if open_to_others(file) {
        let advice = format!("chmod 600 {}, and rotate the key", file.display());
        return Check::bad(name, format!("others may read {}", file.display()), &advice);
    }
    Check::good(name, format!("{}, for its owner alone", file.display()))
}

fn ledger(data: &Path) -> Check {
    let looked = Reader::of_folder(data).and_then(|reader| {
        let verified = reader.verify(None)?;
        let keys = if verified.broken.is_none() { check_kept(&reader)? } else { Vec::new() };
        Ok((verified, keys))
    });
    match looked {
        Ok((verified, keys)) if verified.broken.is_none() && keys.is_empty() => {
            Check::good("ledger", format!("{} events hang together", verified.events))
        }
        Ok(_) => Check::bad(
            "ledger",
            "it was changed",
            "`tollgate ledger verify` says where; keep a copy of the data folder first",
        ),
        Err(error) => Check::bad("ledger", error.to_string(), "see above"),
    }
}

/// What commands of agents can be kept from, by trying it; and what there is to run.
fn confined(config: ShellConfig, data: PathBuf) -> Vec<Check> {
    let tried = wait(async {
        let made =
            tokio::task::spawn_blocking(move || Shell::new(config, crate::sandbox(), Some(&data)));
        let shell = made.await.map_err(|error| Failure::bad_input(error.to_string()))?;
        let tier = shell.sandbox().tier().await;
        let report =
            shell.sandbox().self_test(tier.as_ref().map_or(Tier::Full, |tier| *tier)).await;
        Ok((shell, tier, report))
    });
    let (shell, tier, report) = match tried {
        Ok(tried) => tried,
        Err(failure) => return vec![Check::bad("sandbox", failure.to_string(), "see above")],
    };
    let machine = &report.machine;
    let on = format!(
        "kernel {}, Landlock {}, control groups {}, memory bounded by {}",
        machine.kernel, machine.landlock_abi, machine.cgroups, machine.memory_by
    );
    let mut checks = vec![match tier {
        Ok(tier) => Check::good(
            "sandbox",
            format!("{} guarantees hold in the {} tier ({on})", report.checks.len(), word(tier)),
        ),
        Err(why) => Check::note(
            "sandbox",
            format!("shell.exec is not callable: {why} ({on})"),
            "docs/sandbox.md says what the kernel must allow",
        ),
    }];
    checks.extend(report.checks.iter().map(|check| {
        let line = format!("{}: {}", check.guarantee, check.how);
        match check.held {
            true => Check::good("", &check.guarantee),
            false => Check::note("", line, "this did not hold when it was tried"),
        }
    }));
    let (here, missing): (Vec<_>, Vec<_>) =
        shell.resolved().iter().partition(|(_, found)| found.is_ok());
    let names = |list: &[(&String, &_)]| {
        list.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
    };
    checks.push(Check::good("programs", names(&here)));
    if !missing.is_empty() {
        checks.push(Check::note(
            "not installed",
            names(&missing),
            "install them, or take them out of [shell.programs]",
        ));
    }
    checks
}

fn word(tier: Tier) -> &'static str {
    match tier {
        Tier::Full => "full",
        Tier::Landlock => "landlock",
    }
}

fn gate(args: &GateArgs) -> Vec<Check> {
    let asked = || -> Result<(String, Value, Option<Value>), Failure> {
        let address = args.address()?;
        let key = args.key()?;
        let client = Client::with_patience(args, key, Duration::from_secs(5))?;
        let (health, head) = wait(async {
            let health = client.get("/v1/health").await?;
            Ok((health, client.get("/v1/ledger/head").await.ok()))
        })?;
        Ok((address, health, head))
    };
    match asked() {
        Err(failure) => {
            vec![Check::note("gate", failure.to_string(), "start it with `tollgate serve`")]
        }
        Ok((address, health, head)) => {
            let version = health.part("version").as_str().unwrap_or_default().to_owned();
            let mut checks = vec![match health.part("status").as_str() {
                Some("ok") => Check::good(
                    "gate",
                    format!("answers at {address}, up {} s", health.part("uptime_seconds")),
                ),
                _ => Check::bad(
                    "gate",
                    format!("answers at {address}, and is {}", health.part("status")),
                    "its log says why; most often the disk is full",
                ),
            }];
            if version != env!("CARGO_PKG_VERSION") {
                checks.push(Check::note(
                    "gate's version",
                    version,
                    "restart the gate to use this one",
                ));
            }
            checks.push(match head {
                Some(_) => Check::good("key", "the gate accepts it"),
                None => Check::note(
                    "key",
                    "the gate does not accept the key, or there is none",
                    "`tollgate explain INVALID_API_KEY` says what to do",
                ),
            });
            checks
        }
    }
}

fn told(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let mark = match check.state {
            State::Good => "✓",
            State::Note => "!",
            State::Bad => "✗",
        };
        let _ = writeln!(text, "{mark} {:<15} {}", check.name, wrap(&check.found, 18));
        if let Some(advice) = &check.advice {
            let _ = writeln!(text, "  {:<15} → {}", "", wrap(advice, 20));
        }
    }
    text
}
