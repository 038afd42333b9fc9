//! What work really takes, learned from what was used: for each kind of work and each pool a sketch of the
//! amounts, from which a quantile can be read. It is what work is taken to cost of which nobody says what to
//! expect.
//!
//! A sketch knows amounts to within two percent, whatever their size. Two of them are kept, the later one
//! filling up while the earlier one still counts, so that what was long ago is forgotten.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sketches_ddsketch::{Config, DDSketch};
use tollgate_contract::text::hex;

use crate::{config::LARGEST_AMOUNT, intent::whole};

/// For how many pairs of work and pool something is learned: whoever makes up names must not fill the memory.
const MOST_PAIRS: usize = 1024;

/// So many amounts are in a sketch when the next one begins.
const IN_A_SKETCH: u64 = 1000;

/// Fewer amounts than this say nothing.
const FEW: u64 = 20;

/// By how much a sketch may be wrong.
const ERROR: f64 = 0.02;

/// Which quantile is taken for the cost.
const QUANTILE: f64 = 0.95;

/// What was learned.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Costs {
    /// By work, and then by pool.
    by: HashMap<Arc<str>, HashMap<Arc<str>, Learning>>,
    pairs: usize,
}

/// What was learned of one kind of work in one pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Learning {
    later: Sketch,
    earlier: Option<Sketch>,
    count: u64,
    all: u64,
}

/// A sketch that can be compared and written down.
#[derive(Clone)]
struct Sketch(DDSketch);

impl Sketch {
    fn settings() -> Config {
        Config::new(ERROR, 1024, 0.5)
    }

    fn new() -> Self {
        Self(DDSketch::new(Self::settings()))
    }

    /// At least what the quantile really is: a sketch may be too low by its error.
    fn quantile(&self, part: f64) -> u64 {
        let found = self.0.quantile(part).ok().flatten();
        found.map(|amount| amount * (1.0 + ERROR)).and_then(whole).unwrap_or(0)
    }
}

impl PartialEq for Sketch {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_java_bytes() == other.0.to_java_bytes()
    }
}

impl std::fmt::Debug for Sketch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sketch({} amounts)", self.0.count())
    }
}

impl Serialize for Sketch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&hex(&self.0.to_java_bytes()))
    }
}

impl<'de> Deserialize<'de> for Sketch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || de::Error::custom("no sketch of amounts");
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let bytes: Option<Vec<u8>> = text
            .as_bytes()
            .chunks(2)
            .map(|pair| match pair {
                [high, low] => Some(digit(*high)? * 16 + digit(*low)?),
                _ => None,
            })
            .collect();
        let bytes = bytes.ok_or_else(wrong)?;
        DDSketch::from_java_bytes(&bytes).map(Self).map_err(|_| wrong())
    }
}

/// What work takes of a pool, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedCost {
    /// The work.
    pub workload: Arc<str>,
    /// The pool.
    pub pool: Arc<str>,
    /// How often it was seen.
    pub samples: u64,
    /// Half of it takes no more than this.
    pub p50: u64,
    /// What it is taken to cost where nobody says what to expect; `None` while too little is known.
    pub p95: Option<u64>,
}

impl Costs {
    /// So much was used of a pool by some work.
    pub(crate) fn note(&mut self, workload: &Arc<str>, pool: &Arc<str>, used: u64) {
        let known = self.by.get_mut(workload).and_then(|pools| pools.get_mut(pool));
        let learning = match known {
            Some(learning) => learning,
            None if self.pairs >= MOST_PAIRS => return,
            None => {
                self.pairs += 1;
                let pools = self.by.entry(Arc::clone(workload)).or_default();
                pools.entry(Arc::clone(pool)).or_insert_with(|| Learning {
                    later: Sketch::new(),
                    earlier: None,
                    count: 0,
                    all: 0,
                })
            }
        };
        if learning.count >= IN_A_SKETCH {
            learning.earlier = Some(std::mem::replace(&mut learning.later, Sketch::new()));
            learning.count = 0;
        }
        learning.later.0.add(used.min(LARGEST_AMOUNT) as f64);
        learning.count += 1;
        learning.all = learning.all.saturating_add(1);
    }

    /// What such work is taken to cost.
    pub(crate) fn of(&self, workload: &str, pool: &str) -> Option<u64> {
        self.by.get(workload)?.get(pool)?.cost()
    }

    /// All of it, in the order of the names.
    pub(crate) fn shown(&self) -> Vec<LearnedCost> {
        let pairs = self.by.iter().flat_map(|(workload, pools)| {
            pools.iter().map(move |(pool, learning)| LearnedCost {
                workload: Arc::clone(workload),
                pool: Arc::clone(pool),
                samples: learning.all,
                p50: learning.quantile(0.5),
                p95: learning.cost(),
            })
        });
        let mut all: Vec<LearnedCost> = pairs.collect();
        all.sort_by(|one, other| (&one.workload, &one.pool).cmp(&(&other.workload, &other.pool)));
        all
    }
}

impl Learning {
    fn cost(&self) -> Option<u64> {
        (self.all >= FEW).then(|| self.quantile(QUANTILE))
    }

    /// The larger of what both sketches say, where both say something.
    fn quantile(&self, part: f64) -> u64 {
        let later = (self.count >= FEW || self.earlier.is_none()).then_some(&self.later);
        let sketches = later.into_iter().chain(&self.earlier);
        sketches.map(|sketch| sketch.quantile(part)).max().unwrap_or(0)
    }
}

#[cfg(test)]
#[path = "costs_tests.rs"]
mod tests;
