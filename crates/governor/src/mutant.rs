//! Faults on purpose. A test that cannot fail shows nothing: each of these breaks one promise of the governor,
//! and whoever checks that promise must notice. They exist with the feature `mutants` only, and do nothing
//! until one is switched on by name.

use crate::state::Governor;

/// One promise that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// An approval holds nothing.
    HoldsNothing,
    /// What is reported as used is given back.
    ForgetsUsage,
    /// A hold that nobody settles is given back, whatever its pool says.
    RefundsExpired,
    /// A hold counts in the window in which it begins, and not in those that it reaches into.
    CountsOneWindow,
    /// A booking takes no room before its time: later asks take it.
    MovesBookings,
    /// Anybody may book as far ahead as a day.
    BooksBeyondReach,
    /// Nothing is kept free for what is urgent.
    IgnoresHeadroom,
    /// Whoever cries wolf is believed.
    BelievesEveryone,
    /// One agent may hold everything while others want it too.
    IgnoresShares,
    /// A provider that has less left than we thought is not believed.
    IgnoresCorrections,
    /// A provider that wants nobody to come is not heeded.
    IgnoresClosure,
    /// A report is believed however old it is.
    IgnoresSilence,
    /// What is stopped goes on.
    IgnoresHalts,
    /// A configuration that is read again changes nothing.
    IgnoresReload,
    /// After a restart from a snapshot nothing was ever spent or held.
    ForgetsAtRestart,
}

impl Governor {
    /// Breaks a promise.
    pub fn mutate(&mut self, mutant: Mutant) {
        self.mutant = Some(mutant);
    }

    pub(crate) fn is_mutant(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
