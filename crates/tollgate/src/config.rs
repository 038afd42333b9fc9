//! The configuration: `tollgate.toml`. It is read as a whole or not at all.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate_agent::runtime::AgentConfig;
use tollgate_contract::{Capability, Quoted, text::nearest};
use tollgate_gate::ConsentSettings;
use tollgate_governor::{
    GovernorConfig, Per, PoolConfig, RouteConfig, RuleConfig, Settings as GovernorSettings,
    duration,
};
use tollgate_ledger::Sync;
use tollgate_models::ModelConfig;
use tollgate_outbound::{AddressGuard, PollSource};
use tollgate_policy::{Policy, PolicyError, PolicySet};
use tollgate_server::Settings;
use tollgate_tools::{http::HttpConfig, shell::ShellConfig, workspace::Quota};

use crate::{output::Failure, source};

/// Where the configuration is looked for when none is named.
pub(crate) const USUAL_FILE: &str = "tollgate.toml";
/// Where the data is kept when nothing is said.
pub(crate) const USUAL_DATA: &str = ".tollgate";
/// Where the gate listens when nothing is said.
pub(crate) const USUAL_LISTEN: &str = "127.0.0.1:8090";

/// The longest that something may wait for a person: 30 days.
const LONGEST_WAIT_MS: i64 = 30 * 24 * 60 * 60 * 1000;

/// Events that are never retired.
const FOREVER: &str = "forever";

/// A configuration, as the file says it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// How the daemon runs.
    #[serde(default)]
    pub(crate) daemon: Daemon,
    /// The server's policy.
    #[serde(default)]
    pub(crate) server: Policy,
    /// Policies by name.
    #[serde(default)]
    pub(crate) policies: BTreeMap<String, Policy>,
    /// Limits.
    #[serde(default)]
    pub(crate) pools: Vec<PoolConfig>,
    /// Which work draws on which of them.
    #[serde(default)]
    pub(crate) routes: Vec<RouteConfig>,
    /// What a person wants beyond the limits.
    #[serde(default)]
    pub(crate) rules: Vec<RuleConfig>,
    /// How the governor behaves.
    #[serde(default)]
    pub(crate) governor: GovernorSettings,
    /// Providers that are asked for their own count.
    #[serde(default)]
    pub(crate) polls: Vec<Poll>,
    /// Where webhooks may go.
    #[serde(default)]
    pub(crate) webhooks: WebhookSettings,
    /// How people are asked.
    #[serde(default)]
    pub(crate) approvals: ApprovalSettings,
    /// What the network is for those who may use it.
    #[serde(default)]
    pub(crate) net: NetSettings,
    /// How far one `http.get` may go, and what its cache keeps.
    #[serde(default)]
    pub(crate) http: HttpConfig,
    /// Where sessions have their files, and how many.
    #[serde(default)]
    pub(crate) workspace: WorkspaceSettings,
    /// What `shell.exec` may run, and within which bounds.
    #[serde(default)]
    pub(crate) shell: ShellConfig,
    /// Models, by the name that they have here.
    #[serde(default)]
    pub(crate) models: BTreeMap<String, ModelConfig>,
    /// How agents are run.
    #[serde(default)]
    pub(crate) agent: AgentConfig,
}

/// Where sessions have their files, and how many.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WorkspaceSettings {
    /// One folder for all sessions, in place of one for each in the data folder.
    pub(crate) root: Option<PathBuf>,
    /// Most bytes of a session's files.
    pub(crate) bytes: Option<u64>,
    /// Most files and folders of a session.
    pub(crate) files: Option<u64>,
}

/// How people are asked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ApprovalSettings {
    /// How long something waits for an answer, and how long a yes can be used.
    pub(crate) answer_within: Option<String>,
}

/// What the network is for those who may use it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NetSettings {
    /// Hosts that the capability `net` reaches: `example.com`, `*.example.com`. All of them without a list.
    pub(crate) allow: Option<Vec<String>>,
}

/// A provider that is asked for its own count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Poll {
    /// The pools that its answer is for.
    pub(crate) pools: Vec<String>,
    /// The credential that it is asked with, for pools that are counted for each.
    pub(crate) identity: Option<String>,
    /// How it is asked.
    pub(crate) source: PollSource,
}

/// Where webhooks may go.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WebhookSettings {
    /// To addresses of this machine and its network as well.
    pub(crate) allow_private: bool,
    /// To these hosts, whatever their address.
    pub(crate) allowed_hosts: Vec<String>,
}

/// How the daemon runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Daemon {
    #[serde(default)]
    pub(crate) listen: Vec<String>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) sync: Option<SyncWord>,
    pub(crate) max_body_bytes: Option<u32>,
    pub(crate) max_connections: Option<u32>,
    pub(crate) call_timeout_seconds: Option<u32>,
    pub(crate) stop_grace_seconds: Option<u32>,
    #[serde(default)]
    pub(crate) allowed_hosts: Vec<String>,
    #[serde(default)]
    pub(crate) allowed_origins: Vec<String>,
    #[serde(default)]
    pub(crate) trusted_proxy: bool,
    pub(crate) keep_events: Option<String>,
    pub(crate) log: Option<LogFormat>,
    pub(crate) log_level: Option<LogLevel>,
}

/// What an acknowledged event survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SyncWord {
    Process,
    Full,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Which log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

impl Config {
    /// Reads a configuration from its text.
    pub(crate) fn parse(text: &str) -> Result<Self, PolicyError> {
        let config: Self = PolicySet::parse_among(text)?;
        config.check().map_err(|error| error.placed(text))?;
        Ok(config)
    }

    /// Passes if what is written means something.
    fn check(&self) -> Result<(), PolicyError> {
        let config = self;
        config.policies().check_names()?;
        let setup = config
            .governor_config()
            .build(jiff::Timestamp::now().as_millisecond())
            .map_err(|error| PolicyError::of(&error.field, &error.problem))?;
        if let Some(text) = &config.daemon.keep_events
            && text != FOREVER
            && let Err(problem) = duration(text)
        {
            return Err(PolicyError::of("daemon.keep_events", &problem));
        }
        for (place, poll) in config.polls.iter().enumerate() {
            let wrong = |what: &str, problem: String| {
                Err(PolicyError::of(&format!("polls[{place}].{what}"), &problem))
            };
            if let Err(problem) = poll.source.check() {
                return wrong("source", problem.to_string());
            }
            for id in &poll.pools {
                match setup.by_id(id) {
                    None => return wrong("pools", format!("there is no pool `{id}`")),
                    Some(pool) if !pool.window.learns_resets() => {
                        let problem = format!(
                            "`{id}` does not learn from its provider: its window is neither `provider` nor aligned to an observed reset"
                        );
                        return wrong("pools", problem);
                    }
                    Some(pool) if !matches!(pool.per, Per::Global | Per::Identity) => {
                        let problem = format!(
                            "`{id}` is counted for each {}, and a poll is for one credential",
                            pool.per.as_str()
                        );
                        return wrong("pools", problem);
                    }
                    Some(pool) if pool.per == Per::Identity && poll.identity.is_none() => {
                        return wrong(
                            "identity",
                            format!("is missing: `{id}` is counted for each"),
                        );
                    }
                    Some(_) => {}
                }
            }
        }
        for origin in &config.daemon.allowed_origins {
            if !is_origin(origin) {
                let problem = "is an origin as a browser sends it, such as https://ops.example or http://localhost:3000";
                return Err(PolicyError::of("daemon.allowed_origins", problem));
            }
        }
        if let Some(text) = &config.approvals.answer_within {
            let wrong = |problem: &str| PolicyError::of("approvals.answer_within", problem);
            match duration(text) {
                Err(problem) => return Err(wrong(&problem)),
                Ok(ms) if !(1000..=LONGEST_WAIT_MS).contains(&ms) => {
                    return Err(wrong("is from 1s to 30d"));
                }
                Ok(_) => {}
            }
        }
        if let Err((name, problem)) = config.shell.check() {
            return Err(PolicyError::of(&format!("shell.{name}"), &problem));
        }
        if let Err((name, problem)) = config.http.check() {
            return Err(PolicyError::of(&format!("http.{name}"), &problem));
        }
        config.check_agents()?;
        for entry in config.net.allow.iter().flatten() {
            if let Err(error) = Capability::parse(&format!("net:{entry}")) {
                return Err(PolicyError::of("net.allow", &error.to_string()));
            }
        }
        if config.webhooks.allowed_hosts.iter().any(|host| !is_host(host)) {
            let problem =
                "is the name of a host, such as hooks.example, without a scheme or a path";
            return Err(PolicyError::of("webhooks.allowed_hosts", problem));
        }
        Ok(())
    }

    /// Passes if models and agents can be set up.
    fn check_agents(&self) -> Result<(), PolicyError> {
        for (name, model) in &self.models {
            if let Err((setting, problem)) = model.check() {
                return Err(PolicyError::of(&format!("models.{name}.{setting}"), &problem));
            }
        }
        if let Err((setting, problem)) = self.agent.check() {
            return Err(PolicyError::of(&format!("agent.{setting}"), &problem));
        }
        let named = [
            ("default_model", &self.agent.default_model),
            ("embedding_model", &self.agent.embedding_model),
        ];
        for (setting, name) in named {
            let Some(name) = name.as_ref().filter(|name| !self.models.contains_key(*name)) else {
                continue;
            };
            let near = nearest(name, self.models.keys().map(String::as_str));
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "add a table [models.NAME]".to_owned(),
            };
            let problem = format!("names {}, which is not configured; {hint}", Quoted::new(name));
            return Err(PolicyError::of(&format!("agent.{setting}"), &problem));
        }
        Ok(())
    }

    /// Reads a file.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let text = source::read_text(file)?;
        let mut config = Self::parse(&text)
            .map_err(|error| Failure::policy(&source::name(file), &text, &error))?;
        // What the file names stands beside the file, wherever the command is typed.
        let folder = file.parent().unwrap_or(Path::new(""));
        for path in [&mut config.daemon.data, &mut config.workspace.root].into_iter().flatten() {
            *path = folder.join(&*path);
        }
        for script in config.models.values_mut().filter_map(|model| model.script.as_mut()) {
            *script = folder.join(&*script);
        }
        for address in &mut config.daemon.listen {
            if let Some(socket) = address.strip_prefix("unix:").filter(|path| !path.is_empty()) {
                *address = format!("unix:{}", folder.join(socket).display());
            }
        }
        Ok(config)
    }

    /// Reads the file that was named; else the usual one, if it is there; else nothing is configured.
    pub(crate) fn find(named: Option<&Path>) -> Result<(Self, Option<PathBuf>), Failure> {
        let usual = Path::new(USUAL_FILE);
        match named {
            Some(file) => Ok((Self::read(file)?, Some(file.to_owned()))),
            None if usual.exists() => Ok((Self::read(usual)?, Some(usual.to_owned()))),
            None => Ok((Self::default(), None)),
        }
    }

    /// The data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.daemon.data.clone().unwrap_or_else(|| PathBuf::from(USUAL_DATA))
    }

    /// The policies.
    pub(crate) fn policies(&self) -> PolicySet {
        PolicySet { server: self.server.clone(), policies: self.policies.clone() }
    }

    /// Pools, routes, and how the governor behaves; the usual pool where none is configured.
    pub(crate) fn governor_config(&self) -> GovernorConfig {
        let (pools, routes) = (self.pools.clone(), self.routes.clone());
        let (rules, governor) = (self.rules.clone(), self.governor.clone());
        GovernorConfig { pools, routes, rules, governor }.or_usual()
    }

    /// How people are asked, and what the network is.
    pub(crate) fn consent(&self) -> ConsentSettings {
        let usual = ConsentSettings::default();
        let within = self.approvals.answer_within.as_deref().and_then(|text| duration(text).ok());
        let allowed = |list: &Vec<String>| {
            list.iter()
                .filter_map(|entry| Capability::parse(&format!("net:{entry}")).ok())
                .collect()
        };
        ConsentSettings {
            answer_within_ms: within.unwrap_or(usual.answer_within_ms),
            net_allowlist: self.net.allow.as_ref().map(allowed),
        }
    }

    /// How much a session's files may be.
    pub(crate) fn quota(&self) -> Quota {
        let usual = Quota::default();
        Quota {
            bytes: self.workspace.bytes.unwrap_or(usual.bytes),
            files: self.workspace.files.unwrap_or(usual.files),
        }
    }

    /// What the ledger promises. Where real money is at stake every commit waits for the disk.
    pub(crate) fn sync(&self) -> Sync {
        if self.has_hard_money() {
            return Sync::Full;
        }
        match self.daemon.sync {
            Some(SyncWord::Full) => Sync::Full,
            Some(SyncWord::Process) | None => Sync::Process,
        }
    }

    /// How long events are kept; for ever where nothing is said.
    pub(crate) fn keep_events_ms(&self) -> Option<i64> {
        self.daemon
            .keep_events
            .as_deref()
            .filter(|text| *text != FOREVER)
            .and_then(|text| duration(text).ok())
    }

    /// Is there a hard limit on money?
    pub(crate) fn has_hard_money(&self) -> bool {
        self.pools.iter().any(|pool| pool.hard && pool.unit() == "usd_micros")
    }

    /// How long a call may run.
    pub(crate) fn call_timeout(&self) -> Option<Duration> {
        self.daemon.call_timeout_seconds.map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// How much of one client is borne.
    pub(crate) fn server_settings(&self) -> Settings {
        let daemon = &self.daemon;
        let usual = Settings::default();
        let number = |given: Option<u32>, usual: usize| {
            given.and_then(|number| usize::try_from(number).ok()).unwrap_or(usual)
        };
        Settings {
            max_body_bytes: number(daemon.max_body_bytes, usual.max_body_bytes),
            max_connections: number(daemon.max_connections, usual.max_connections).max(1),
            stop_grace: daemon
                .stop_grace_seconds
                .map_or(usual.stop_grace, |seconds| Duration::from_secs(seconds.into())),
            allowed_hosts: daemon.allowed_hosts.clone(),
            allowed_origins: daemon.allowed_origins.clone(),
            webhook_guard: AddressGuard {
                allow_private: self.webhooks.allow_private,
                allowed_hosts: self.webhooks.allowed_hosts.clone(),
            },
            ..usual
        }
    }

    /// The configuration as it is recorded: all of it but what the headers of models say, and where the gate really
    /// listens.
    pub(crate) fn recorded(&self, listening: &[String]) -> Value {
        let mut recorded = self.clone();
        for model in recorded.models.values_mut() {
            model.headers.values_mut().for_each(|value| "…".clone_into(value));
        }
        json!({"listening": listening, "configuration": recorded})
    }
}

/// Is this an origin as a browser sends it: a scheme, one host, perhaps a port, and nothing else?
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    host.is_some_and(|host| !host.is_empty() && host.chars().all(is_plain))
}

/// Is this the name or the address of a host, and nothing else?
fn is_host(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    !text.is_empty() && !text.contains("://") && text.chars().all(is_plain)
}

/// What `tollgate init` writes.
pub(crate) const COMMENTED: &str = include_str!("tollgate.toml");

/// The example of agents that share a GitHub quota.
pub(crate) const GITHUB: &str = include_str!("github.toml");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commented_file_loads_and_says_what_holds_without_it() {
        assert_eq!(Config::parse(COMMENTED).unwrap(), Config::default());
        // Every line that is commented out is a setting that loads.
        let uncommented: String = COMMENTED
            .lines()
            .map(|line| line.strip_prefix("#: ").unwrap_or(line))
            .map(|line| format!("{line}\n"))
            .collect();
        let config = Config::parse(&uncommented).unwrap();
        assert_eq!(config.daemon.listen, [USUAL_LISTEN]);
        assert_eq!(config.daemon.data.as_deref(), Some(Path::new(USUAL_DATA)));
        assert_eq!(config.sync(), Sync::Process);
        let (said, usual) = (config.server_settings(), Settings::default());
        assert_eq!(
            (said.max_body_bytes, said.max_connections),
            (usual.max_body_bytes, usual.max_connections)
        );
        assert_eq!(said.stop_grace, usual.stop_grace);
        assert!(config.policies.contains_key("researcher"));
    }

    #[test]
    fn what_headers_say_is_not_recorded() {
        let text = "[models.one]\nurl = \"http://127.0.0.1:1/v1\"\napi_key_env = \"ONE_KEY\"\nheaders = { x-team = \"hunter2\" }\n";
        let recorded = Config::parse(text).unwrap().recorded(&[]).to_string();
        assert!(!recorded.contains("hunter2"), "{recorded}");
        assert!(recorded.contains("x-team") && recorded.contains("ONE_KEY"), "{recorded}");
    }

    #[test]
    fn a_misspelt_name_is_told_with_its_place_and_what_was_meant() {
        let error = Config::parse("[daemon]\nlisten = []\nmax_conections = 5\n").unwrap_err();
        let place = error.position().unwrap();
        assert_eq!((place.line, place.column), (3, 1));
        assert_eq!(error.suggestion(), Some("max_connections"));
        let error = Config::parse("[policies.reader]\nmaxSideEfect = \"none\"\n").unwrap_err();
        assert_eq!(error.suggestion(), Some("maxSideEffect"));
        // What is written well and means nothing has a place too.
        let pool =
            "[[pools]]\nid = \"p:a\"\nlimit = 0\nwindow = { kind = \"fixed\", every = \"0s\" }\n";
        let at = |text: &str| {
            let place = Config::parse(text).unwrap_err().position().unwrap();
            (place.line, place.column)
        };
        assert_eq!(at(pool), (4, 1));
        assert_eq!(at(&pool.replace("0s", "1h")), (3, 1));
        let whole = pool.replace("limit = 0", "limit = 5").replace("0s", "1h");
        assert_eq!(at(&format!("{whole}\n[[routes]]\npools = [{{ id = \"p:b\" }}]\n")), (7, 12));
        assert_eq!(at(&format!("# one\n{whole}{whole}")), (7, 1));
        for text in [
            "[shell]\nmemory_bytes = 1\n",
            "[shell]\nprocesses = 0\n",
            "[shell]\nopen_files = 3\n",
            "[shell]\nmax_timeout_s = 0\n",
            "[shell]\ndeny = [\"\"]\n",
            "[shell.programs.make]\npath = \"bin/make\"\n",
            "[shell.programs.make]\nread_only = [\"/\"]\n",
            "[shell.programs.\"/bin/ls\"]\n",
            "[http]\ntimeout_seconds = 0\n",
            "[http]\nmost_bytes = -1\n",
            "[approvals]\nanswer_within = \"0s\"\n",
            "[net]\nallow = [\"https://example.com\"]\n",
            "[models.local]\nurl = \"127.0.0.1:8080\"\n",
            "[models.local]\nurl = \"http://127.0.0.1:8080/v1\"\ncontext_tokens = 1\n",
            "[models.local]\nurl = \"http://127.0.0.1:8080/v1\"\nheaders = { authorization = \"x\" }\n",
            "[models.local]\nkind = \"scripted\"\n",
            "[models.local]\nurl = \"http://127.0.0.1:8080/v1\"\nprice = { input = -1.0 }\n",
            "[agent]\ndefault_model = \"locl\"\n",
            "[agent]\nembedding_model = \"local\"\n",
            "[agent]\nkeep_messages = 1\n",
            "[agent]\ndefault_budget = { rounds = 0 }\n",
            "[agent]\ndefault_budget = \"on\"\n",
            "[agent]\ndefault_policy = { maxSideEfect = \"none\" }\n",
        ] {
            let error = Config::parse(text).expect_err(text);
            assert!(error.position().is_some(), "{text}: {error}");
        }
        let error = Config::parse("[agent]\ndefault_policy = { maxSideEfect = \"none\" }\n");
        assert_eq!(error.unwrap_err().suggestion(), Some("maxSideEffect"));
        let error = Config::parse("[agent.default_budget]\nround = 3\n").unwrap_err();
        assert_eq!(error.suggestion(), Some("rounds"), "{error}");
        let error = Config::parse("[deamon]\n").unwrap_err();
        assert_eq!(error.suggestion(), Some("daemon"));
        assert!(Config::parse("[policies.readonly]\n").is_err());
        for origin in ["*", "https://*.example", "https://a.example/", "null", "", "a.example"] {
            let text = format!("[daemon]\nallowed_origins = [\"{origin}\"]\n");
            assert!(Config::parse(&text).is_err(), "{origin}");
        }
        let text = "[daemon]\nallowed_origins = [\"http://localhost:3000\"]\n";
        assert!(Config::parse(text).is_ok());
    }
}
