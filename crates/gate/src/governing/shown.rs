//! The governor's state as people look at it.

use std::sync::Arc;

use tollgate_governor::{Forecasted, LearnedCost, Named, Pool, Reading};

use super::Governing;

/// One meter of a pool.
#[derive(Debug, Clone)]
pub struct PoolReading {
    /// The pool.
    pub pool: Arc<Pool>,
    /// The key within it, by the name that its owner uses; `None` for a pool without keys.
    pub key: Option<String>,
    /// What is counted.
    pub reading: Reading,
}

/// What is to be expected of one meter of a pool.
#[derive(Debug, Clone)]
pub struct PoolForecast {
    /// The key within it, by the name that its owner uses; `None` for a pool without keys.
    pub key: Option<String>,
    /// When it was worked out.
    pub as_of: i64,
    /// What is to be expected.
    pub forecasted: Forecasted,
}

impl Governing {
    /// Every meter, pool by pool; a pool that nobody has used yet is shown once.
    pub fn pools(&self) -> Vec<PoolReading> {
        let mut live = self.shared.live();
        let now = live.read_time(&*self.shared.clock);
        live.governor
            .readings(now)
            .into_iter()
            .map(|(pool, key, reading)| {
                let key = key.map(|key| match live.governor.identities().name_of(&key) {
                    Some(name) => name.to_owned(),
                    None => key.to_string(),
                });
                PoolReading { pool, key, reading }
            })
            .collect()
    }

    /// What is to be expected of pools, of so many meters at most.
    pub fn forecasts(&self, wanted: impl Fn(&str) -> bool, most: usize) -> Vec<PoolForecast> {
        let mut live = self.shared.live();
        let now = live.read_time(&*self.shared.clock);
        let all = live.governor.forecasts(now, wanted, most);
        let named = |key: &Arc<str>| match live.governor.identities().name_of(key) {
            Some(name) => name.to_owned(),
            None => key.to_string(),
        };
        all.into_iter()
            .map(|forecasted| PoolForecast {
                key: forecasted.key.as_ref().map(named),
                as_of: now,
                forecasted,
            })
            .collect()
    }

    /// What was learned of what work takes.
    pub fn learned_costs(&self) -> Vec<LearnedCost> {
        self.shared.live().governor.learned_costs()
    }

    /// Every credential that has a name.
    pub fn identities(&self) -> Vec<Arc<Named>> {
        let mut all: Vec<Arc<Named>> =
            self.shared.live().governor.identities().named().cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// What the owner of a credential calls it.
    pub fn identity_name(&self, pseudonym: &str) -> Option<String> {
        self.shared.live().governor.identities().name_of(pseudonym).map(str::to_owned)
    }

    /// How a credential is called in events.
    pub fn pseudonym(&self, name: &str) -> Option<Arc<str>> {
        let live = self.shared.live();
        live.governor.identities().by_name(name).map(|named| Arc::clone(&named.pseudonym))
    }

    /// How many holds are open.
    pub fn open_holds(&self) -> usize {
        self.shared.live().governor.open_holds()
    }
}
