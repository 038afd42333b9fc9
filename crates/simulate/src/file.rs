//! A scenario as it is written. What the governor reads by itself (pools, routes, settings) is not here.

use serde::{Deserialize, Deserializer, de::Error};
use tollgate_contract::Urgency;
use tollgate_governor::{Expected, duration};

use crate::file_world::{InvariantFile, ProviderFile, SabotageFile};
use toml::Spanned;

/// The sections of a scenario file that are not the governor's.
#[derive(Debug, Deserialize)]
pub(crate) struct ScenarioFile {
    /// What it is called.
    pub(crate) name: String,
    /// What it tells, in a sentence.
    #[serde(default)]
    pub(crate) about: String,
    /// What chance is made of.
    #[serde(default = "one_seed")]
    pub(crate) seed: u64,
    /// How long it runs.
    pub(crate) lasts: Length,
    /// At which moment it begins: windows of a day end at midnight.
    #[serde(default)]
    pub(crate) starts_at: Option<Spanned<String>>,
    /// Who asks.
    pub(crate) agents: Vec<AgentsFile>,
    /// What is behind the limits.
    #[serde(default)]
    pub(crate) providers: Vec<ProviderFile>,
    /// What goes wrong.
    #[serde(default)]
    pub(crate) sabotage: Vec<Spanned<SabotageFile>>,
    /// What must hold.
    #[serde(default)]
    pub(crate) invariants: Vec<Spanned<InvariantFile>>,
}

fn one_seed() -> u64 {
    1
}

fn one() -> u32 {
    1
}

/// A length of time, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Length(pub(crate) i64);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        duration(&String::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
    }
}

/// So many agents of one kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentsFile {
    pub(crate) name: Spanned<String>,
    /// How many; they are called `name-1` and so on.
    #[serde(default = "one")]
    pub(crate) count: u32,
    /// Their credential: one for all of them, or `each` for one of their own.
    #[serde(default)]
    pub(crate) identity: Option<String>,
    pub(crate) workload: Spanned<String>,
    #[serde(default = "here")]
    pub(crate) scope: String,
    #[serde(default)]
    pub(crate) account: Option<String>,
    #[serde(default = "normal")]
    pub(crate) urgency: Urgency,
    /// Somebody vouched for its claim to be urgent.
    #[serde(default)]
    pub(crate) vouched: bool,
    /// What it says that it will take.
    #[serde(default)]
    pub(crate) expected_cost: Option<Cost>,
    /// What it really takes.
    #[serde(default)]
    pub(crate) takes: Takes,
    /// How often it says what it took.
    #[serde(default)]
    pub(crate) reports: Share,
    /// How often it heeds a no.
    #[serde(default)]
    pub(crate) obeys: Share,
    #[serde(default)]
    pub(crate) starts: Option<Length>,
    #[serde(default)]
    pub(crate) stops: Option<Length>,
    /// It acts at some moment of this length after it may.
    #[serde(default)]
    pub(crate) acts_within: Option<Length>,
    /// How long an act runs.
    #[serde(default)]
    pub(crate) runs: Option<Length>,
    pub(crate) behaviour: Behaviour,
    #[serde(default)]
    pub(crate) retries: Retries,
    /// After this long it drops what it wanted.
    #[serde(default)]
    pub(crate) gives_up: Option<Length>,
}

fn normal() -> Urgency {
    Urgency::Normal
}

fn here() -> String {
    "here".to_owned()
}

/// What is expected: a number, or a text such as `100 points`.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "CostFile")]
pub(crate) struct Cost(pub(crate) Expected);

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number, or a text such as \"100 points\"")]
enum CostFile {
    Number(f64),
    Text(String),
}

impl TryFrom<CostFile> for Cost {
    type Error = String;

    fn try_from(file: CostFile) -> Result<Self, String> {
        let (cost, shown) = match file {
            CostFile::Number(number) => (Expected::number(number), number.to_string()),
            CostFile::Text(text) => (Expected::parse(&text), text),
        };
        cost.map(Self).ok_or_else(|| {
            format!("`{shown}` is no cost; write a number, or a text such as \"100 points\"")
        })
    }
}

/// What an act really takes.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "expected a whole number, { min = 1, max = 5 } or { mean = 3.5 }")]
pub(crate) enum Takes {
    Always(u64),
    Between(Between),
    About(About),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Between {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct About {
    pub(crate) mean: f64,
}

impl Default for Takes {
    fn default() -> Self {
        Self::Always(1)
    }
}

/// How often something happens, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "ShareFile")]
pub(crate) struct Share(pub(crate) f64);

impl Default for Share {
    fn default() -> Self {
        Self(1.0)
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected true, false, \"always\", \"never\" or a share from 0 to 1")]
enum ShareFile {
    Flag(bool),
    Number(f64),
    Word(ShareWord),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShareWord {
    Always,
    Never,
}

impl TryFrom<ShareFile> for Share {
    type Error = String;

    fn try_from(file: ShareFile) -> Result<Self, String> {
        match file {
            ShareFile::Flag(true) | ShareFile::Word(ShareWord::Always) => Ok(Self(1.0)),
            ShareFile::Flag(false) | ShareFile::Word(ShareWord::Never) => Ok(Self(0.0)),
            ShareFile::Number(share) if (0.0..=1.0).contains(&share) => Ok(Self(share)),
            ShareFile::Number(other) => Err(format!("`{other}` is no share; it is from 0 to 1")),
        }
    }
}

/// When an agent wants something.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Behaviour {
    /// Again and again, whatever became of the last time.
    Periodic {
        every: Length,
        #[serde(default)]
        jitter: f64,
    },
    /// As soon as it has been served.
    Greedy {
        #[serde(default = "short")]
        pause: Length,
    },
    /// By chance, so often on average.
    Poisson { per_second: f64 },
    /// Many at once, now and then.
    Bursty { burst: u32, every: Length, within: Length },
}

fn short() -> Length {
    Length(10)
}

/// What follows a no.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(from = "RetriesFile")]
pub(crate) enum Retries {
    /// It lets it be.
    None,
    /// It asks again when it was told to.
    #[default]
    WhenTold,
    /// It asks again and again, so many milliseconds apart.
    Blindly(i64),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected \"none\", \"when_told\" or { every = \"200ms\" }")]
enum RetriesFile {
    Word(RetryWord),
    Blindly(Every),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RetryWord {
    None,
    WhenTold,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Every {
    every: Length,
}

impl From<RetriesFile> for Retries {
    fn from(file: RetriesFile) -> Self {
        match file {
            RetriesFile::Word(RetryWord::None) => Self::None,
            RetriesFile::Word(RetryWord::WhenTold) => Self::WhenTold,
            RetriesFile::Blindly(Every { every }) => Self::Blindly(every.0),
        }
    }
}
