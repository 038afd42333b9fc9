//! What an operator can say about `shell.exec`.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};
use tollgate_sandbox::TierChoice;

use super::{
    ExecInput, ShellError, deny,
    words::{self, WordsError},
};

/// The programs that may be run unless the configuration says otherwise, those of them that exist.
pub const PROGRAMS: &[&str] = &[
    "ls", "cat", "echo", "pwd", "grep", "rg", "sed", "head", "tail", "wc", "sort", "uniq", "cut",
    "tr", "find", "python3", "pytest", "git",
];

/// The table `[shell]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShellConfig {
    /// Which sandbox: `auto`, `full` or `landlock`.
    pub tier: TierChoice,
    /// What may be run, by name.
    pub programs: BTreeMap<String, ProgramConfig>,
    /// Words that no command may contain.
    pub deny: Vec<String>,
    /// The longest time that a caller may ask for, in seconds.
    pub max_timeout_s: u32,
    /// Memory of everything that a command starts.
    pub memory_bytes: u64,
    /// Processes and threads of everything that a command starts.
    pub processes: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// The largest file that a command may write.
    pub file_bytes: u64,
    /// How much of stdout, and of stderr, is given back.
    pub output_bytes: u64,
}

/// One program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProgramConfig {
    /// Where it is; found on the `PATH` of the gate otherwise.
    pub path: Option<PathBuf>,
    /// Other programs that it starts.
    pub helpers: Vec<PathBuf>,
    /// What it reads besides the system's own folders.
    pub read_only: Vec<PathBuf>,
}

impl ShellConfig {
    /// The program of a command and its arguments, if the command is one that may be.
    pub(super) fn words(&self, input: &ExecInput) -> Result<(String, Vec<String>), ShellError> {
        let words = words::split(&input.cmd)?;
        if let Some(word) = deny::find(&self.deny, &words) {
            return Err(ShellError::Denied(word.to_owned()));
        }
        let most = self.max_timeout_s;
        if input.timeout_s == 0 || input.timeout_s > most {
            return Err(ShellError::TooLong { most });
        }
        let mut words = words.into_iter();
        let name = words.next().ok_or(WordsError::Empty)?;
        Ok((name, words.collect()))
    }

    /// Can this command be run, as far as that is known before the programs were looked for?
    pub(crate) fn check_command(&self, input: &ExecInput) -> Result<(), ShellError> {
        let (name, _) = self.words(input)?;
        if self.programs.contains_key(&name) {
            return Ok(());
        }
        let allowed = self.programs.keys().cloned().collect();
        Err(ShellError::NotAllowed { name: name.as_str().into(), allowed })
    }
}

impl Default for ShellConfig {
    fn default() -> Self {
        let programs =
            PROGRAMS.iter().map(|name| ((*name).to_owned(), ProgramConfig::default())).collect();
        Self {
            tier: TierChoice::Auto,
            programs,
            deny: deny::DEFAULT.iter().map(|word| (*word).to_owned()).collect(),
            max_timeout_s: 600,
            memory_bytes: 512 << 20,
            processes: 64,
            open_files: 256,
            file_bytes: 256 << 20,
            output_bytes: 256 << 10,
        }
    }
}

impl ShellConfig {
    /// What is wrong with it: the setting, and what it should be.
    pub fn check(&self) -> Result<(), (String, String)> {
        let bounds = [
            ("max_timeout_s", u64::from(self.max_timeout_s), 1, 600),
            ("memory_bytes", self.memory_bytes, 16 << 20, 1 << 40),
            ("processes", self.processes, 1, 10_000),
            ("open_files", self.open_files, 16, 100_000),
            ("file_bytes", self.file_bytes, 1, 1 << 50),
            ("output_bytes", self.output_bytes, 1, 16 << 20),
        ];
        for (name, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err((name.to_owned(), format!("is from {least} to {most}")));
            }
        }
        if self.deny.iter().any(|word| word.trim().is_empty()) {
            return Err(("deny".to_owned(), "has a word that is empty".to_owned()));
        }
        for (name, program) in &self.programs {
            let is_name =
                !name.is_empty() && !name.contains('/') && !name.contains(char::is_whitespace);
            if !is_name {
                let problem = "is the name of a program, without a path; `path` says where it is";
                return Err((format!("programs.{name}"), problem.to_owned()));
            }
            let paths = program.path.iter().chain(&program.helpers).chain(&program.read_only);
            for path in paths {
                if !path.is_absolute() || path.parent().is_none() {
                    let problem = "has a path that does not begin with `/`, or is `/` itself";
                    return Err((format!("programs.{name}"), problem.to_owned()));
                }
            }
        }
        Ok(())
    }

    /// The folders and programs that commands may read besides the system's own.
    pub fn named_paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.programs.values().flat_map(|program| {
            program.path.iter().chain(&program.helpers).chain(&program.read_only)
        })
    }
}
