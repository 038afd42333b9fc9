//! What one run may take in all: so many tokens, so much money. Every call of the run sets aside the most that it
//! can use up before it starts, and counts what it really used afterwards, as with the pools of the governor. A pool
//! is shared and lasts; an allowance is one run's, and ends with it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What a run may take.
#[derive(Debug)]
pub struct Allowance(Mutex<BTreeMap<String, Account>>);

#[derive(Debug, Clone, Copy)]
struct Account {
    most: u64,
    spent: u64,
    held: u64,
}

/// How an allowance stands in one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// What may be taken in all.
    pub most: u64,
    /// What was used.
    pub spent: u64,
}

impl Left {
    /// What is left.
    pub fn left(self) -> u64 {
        self.most.saturating_sub(self.spent)
    }
}

/// Why a call has no room in its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotAllowed {
    pub(crate) unit: String,
    pub(crate) why: String,
}

/// What is set aside for a call. It goes back unless it is settled.
pub(crate) struct Taken {
    of: Arc<Allowance>,
    amounts: Mutex<Vec<(String, u64)>>,
}

impl Allowance {
    /// So much of each unit, with what was used of it before.
    pub fn new(limits: impl IntoIterator<Item = (String, u64, u64)>) -> Arc<Self> {
        let account = |(unit, most, spent)| (unit, Account { most, spent, held: 0 });
        Arc::new(Self(Mutex::new(limits.into_iter().map(account).collect())))
    }

    fn accounts(&self) -> MutexGuard<'_, BTreeMap<String, Account>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it stands in a unit; none where the unit is not limited.
    pub fn left(&self, unit: &str) -> Option<Left> {
        let accounts = self.accounts();
        accounts.get(unit).map(|account| Left { most: account.most, spent: account.spent })
    }

    /// Sets the amounts aside. Where a limited unit is not among them, `must_say` tells that the call may use it
    /// all the same, and nobody knows how much.
    pub(crate) fn take(
        of: &Arc<Self>,
        amounts: &[(String, u64)],
        must_say: bool,
    ) -> Result<Taken, NotAllowed> {
        let mut accounts = of.accounts();
        let mut taken = Vec::new();
        for (unit, account) in accounts.iter() {
            let no = |why: String| Err(NotAllowed { unit: unit.clone(), why });
            let amount = match amounts.iter().find(|(known, _)| known == unit) {
                Some((_, amount)) => *amount,
                None if must_say => {
                    return no(format!(
                        "the run may use {} {unit}, and nobody knows what this call costs; give the model a price, or the run no such limit",
                        account.most
                    ));
                }
                None => continue,
            };
            let used = account.spent.saturating_add(account.held);
            if used.saturating_add(amount) > account.most {
                return no(format!(
                    "the run may use {} {unit}, has used {used}, and this call could take {amount}",
                    account.most
                ));
            }
            taken.push((unit.clone(), amount));
        }
        for (unit, amount) in &taken {
            if let Some(account) = accounts.get_mut(unit) {
                account.held = account.held.saturating_add(*amount);
            }
        }
        drop(accounts);
        Ok(Taken { of: Arc::clone(of), amounts: Mutex::new(taken) })
    }
}

impl Taken {
    /// The call has ended and used this much; what was set aside counts where nothing was said.
    pub(crate) fn settle(&self, actual: &[(String, u64)]) {
        self.give_back(|unit, held| {
            actual.iter().find(|(known, _)| known == unit).map_or(held, |(_, used)| *used)
        });
    }

    fn give_back(&self, spent: impl Fn(&str, u64) -> u64) {
        let amounts =
            std::mem::take(&mut *self.amounts.lock().unwrap_or_else(PoisonError::into_inner));
        let mut accounts = self.of.accounts();
        for (unit, held) in amounts {
            if let Some(account) = accounts.get_mut(&unit) {
                account.held = account.held.saturating_sub(held);
                account.spent = account.spent.saturating_add(spent(&unit, held));
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.give_back(|_, _| 0);
    }
}

#[cfg(test)]
#[path = "allowance_tests.rs"]
mod tests;
