//! Finds out, once and before anything is confined, what a program's name stands for: the real binary behind links and
//! shims, its loader, the interpreter of a script, and the folders that it reads.

use std::{
    collections::BTreeMap,
    env, fs, io,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde::Serialize;

use super::config::ProgramConfig;

/// What dynamic programs of this machine are made of.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
const FALLBACK_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// A program that is asked about itself must answer soon.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// Links, shims and interpreters lead to each other at most this often.
const DEEPEST: usize = 5;

/// A program that can be run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Program {
    /// The real binary.
    pub binary: PathBuf,
    /// What comes before the caller's arguments: the options of an interpreter, and the script.
    pub before: Vec<String>,
    /// What is executed: the binary, its loader, helpers.
    pub execute: Vec<PathBuf>,
    /// What is read.
    pub read_only: Vec<PathBuf>,
}

/// Why a program cannot be run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Missing {
    /// No such file.
    #[error("it is not on the PATH")]
    NotFound,
    /// The gate keeps its keys there.
    #[error("it reads {}, which holds the gate's own folder or is in it", .0.display())]
    Private(PathBuf),
    /// Not what it seems.
    #[error("{path}: {problem}", path = .path.display())]
    Unusable {
        /// What was looked at.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

impl Program {
    /// Would whoever runs it read this folder, or a part of it?
    pub(super) fn reaches(&self, folder: &Path) -> bool {
        self.execute.iter().chain(&self.read_only).chain([&self.binary]).any(|path| {
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
            folder.starts_with(&path) || path.starts_with(folder)
        })
    }
}

impl Missing {
    fn at(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Unusable { path: path.clone(), problem: error.to_string() }
    }
}

/// Resolves every program of the list.
pub(super) fn all(
    programs: &BTreeMap<String, ProgramConfig>,
) -> BTreeMap<String, Result<Program, Missing>> {
    programs.iter().map(|(name, config)| (name.clone(), one(name, config))).collect()
}

/// The folders of the system that every command may read.
pub fn system() -> impl Iterator<Item = PathBuf> {
    SYSTEM.iter().map(PathBuf::from).filter(|path| path.exists())
}

fn one(name: &str, config: &ProgramConfig) -> Result<Program, Missing> {
    let path = match &config.path {
        Some(path) => path.clone(),
        None => on_path(name).ok_or(Missing::NotFound)?,
    };
    let mut program = follow(&path, DEEPEST)?;
    for helper in &config.helpers {
        let found = follow(helper, DEEPEST)?;
        program.execute.extend(found.execute);
        program.read_only.extend(found.read_only);
    }
    program.read_only.extend(config.read_only.iter().cloned());
    program.execute.sort();
    program.execute.dedup();
    program.read_only.retain(|path| !system().any(|folder| path.starts_with(folder)));
    program.read_only.sort();
    program.read_only.dedup();
    Ok(program)
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_else(|| FALLBACK_PATH.into());
    env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Follows a path to a real binary.
fn follow(path: &Path, deeper: usize) -> Result<Program, Missing> {
    let unusable =
        |problem: &str| Missing::Unusable { path: path.to_owned(), problem: problem.to_owned() };
    if deeper == 0 {
        return Err(unusable("scripts and shims lead in a circle"));
    }
    let real = fs::canonicalize(path).map_err(Missing::at(path))?;
    let mut start = Vec::new();
    let read = fs::File::open(&real).and_then(|file| file.take(512).read_to_end(&mut start));
    read.map_err(Missing::at(&real))?;
    if start.starts_with(b"\x7fELF") {
        return binary(path, &real);
    }
    if let Some(behind) = behind_shim(path) {
        return follow(&behind?, deeper - 1);
    }
    match start.strip_prefix(b"#!") {
        Some(line) => script(&real, line, deeper),
        None => Err(unusable("it is neither a binary nor a script")),
    }
}

/// A binary with its loader, and what it says it needs.
fn binary(path: &Path, real: &Path) -> Result<Program, Missing> {
    let mut program = Program {
        binary: real.to_owned(),
        execute: vec![real.to_owned()],
        read_only: vec![real.to_owned()],
        ..Program::default()
    };
    if let Some(loader) = tollgate_sandbox::elf::interpreter(real).map_err(Missing::at(real))? {
        let loader = fs::canonicalize(&loader).map_err(Missing::at(&loader))?;
        program.read_only.push(loader.clone());
        program.execute.push(loader);
    }
    let name = real.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name.starts_with("python") || name.starts_with("pypy") {
        add_python(&mut program, path)?;
    } else if name == "git" {
        let folder = PathBuf::from(ask(path, &["--exec-path"])?);
        let inner = folder.join("git");
        if inner.is_file() {
            program.execute.push(inner);
        }
        program.read_only.push(folder);
    }
    Ok(program)
}

/// A Python reads its own folders, and those of the environment that it was started in.
fn add_python(program: &mut Program, path: &Path) -> Result<(), Missing> {
    let question = "import sys; print(sys.executable); print(sys.prefix); print(sys.base_prefix)";
    let answer = ask(path, &["-I", "-c", question])?;
    let mut lines = answer.lines().map(PathBuf::from).filter(|line| line.is_absolute());
    // Its own path, not the real one: next to it lies what says that it is a virtual environment.
    if let Some(executable) = lines.next() {
        let outer = !system().any(|folder| executable.starts_with(folder));
        if outer {
            program.binary = executable;
        }
    }
    let prefixes: Vec<PathBuf> = lines.collect();
    let real = prefixes.iter().filter_map(|prefix| fs::canonicalize(prefix).ok());
    program.read_only.extend(real.collect::<Vec<_>>());
    program.read_only.extend(prefixes);
    Ok(())
}

/// A script is run by its interpreter, which is resolved in its place.
fn script(real: &Path, line: &[u8], deeper: usize) -> Result<Program, Missing> {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let interpreter = words.next().unwrap_or_default();
    let (interpreter, options) = if interpreter.ends_with("/env") {
        let name = words.next().unwrap_or_default();
        (on_path(name).ok_or(Missing::NotFound)?, words.collect::<Vec<_>>())
    } else {
        (PathBuf::from(interpreter), words.collect())
    };
    let mut program = follow(&interpreter, deeper - 1)?;
    program.before.extend(options.into_iter().map(str::to_owned));
    program.before.push(real.to_string_lossy().into_owned());
    program.read_only.push(real.to_owned());
    Ok(program)
}

/// What a version manager's shim stands for: the manager says so.
fn behind_shim(path: &Path) -> Option<Result<PathBuf, Missing>> {
    let folder = path.parent().filter(|folder| folder.ends_with("shims"))?;
    let name = path.file_name()?.to_str()?;
    let home = folder.parent()?;
    let managers = ["bin/pyenv", "libexec/pyenv", "bin/asdf", "bin/rbenv"];
    let manager =
        managers.iter().map(|manager| home.join(manager)).find(|path| is_executable(path))?;
    Some(ask(&manager, &["which", name]).map(PathBuf::from))
}

/// Runs a program of the operator's, unconfined, and gives the first of what it says.
fn ask(program: &Path, arguments: &[&str]) -> Result<String, Missing> {
    let failed = Missing::at(program);
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(&failed)?;
    let until = Instant::now() + ANSWERS_WITHIN;
    let status = loop {
        match child.try_wait().map_err(&failed)? {
            Some(status) => break status,
            None if Instant::now() > until => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(failed(io::ErrorKind::TimedOut.into()));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let mut said = String::new();
    let out = child.stdout.take();
    // Shorter than a pipe holds, or the program would not have ended.
    out.map_or(Ok(0), |out| out.take(64 << 10).read_to_string(&mut said)).map_err(&failed)?;
    if !status.success() || said.trim().is_empty() {
        return Err(failed(io::Error::other(format!("asked `{}`: {status}", arguments.join(" ")))));
    }
    Ok(said.trim().to_owned())
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
