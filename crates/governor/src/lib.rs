//! The governor's pure core: what there is room for, and when.
//!
//! Everything that is counted against a limit is an amount over a span of time: a spent call until its
//! window ends, a hold until it is settled, a booking from its slot on. A [`Profile`] keeps their sum at
//! every moment. [`Span`] says, for each kind of window, over which span a hold counts, so that a limit is
//! kept whenever its holder really acts. A [`Bucket`] is the one kind that refills steadily instead. A
//! [`Meter`] is one limit of either kind, with holds that are settled.
//!
//! No clock, no I/O: time is passed in, in milliseconds since 1970. Nothing here decides about policy, rules
//! or identities, and nothing is stored; that hangs on these parts and is not built yet.

mod bucket;
mod headers;
mod meter;
mod profile;
mod span;

pub use bucket::Bucket;
pub use headers::{Learned, ProviderReport, from_headers};
pub use meter::{Draw, Hold, Meter, earliest_for_all};
pub use profile::{NoRoom, Profile};
pub use span::Span;
