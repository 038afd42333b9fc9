//! The governor's state as people look at it.

use std::sync::Arc;

use tollgate_governor::{Named, Pool, Reading};

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
