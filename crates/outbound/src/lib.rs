//! What the gate sends to the outside of its own accord: polls of providers, and webhooks.
//!
//! A [`Poller`] asks one provider again and again how much is left, and hands over what it says. [`Deliveries`]
//! sends events to the addresses that users gave, signed, in order and at least once. Such an address
//! goes through an [`AddressGuard`] first, so that nobody makes the gate knock on doors inside the operator's
//! own network; what it is made of ([`special`], [`resolve`], [`pinned_client`]) serves others who connect to where
//! somebody else says. Neither follows a redirect, takes a proxy from the environment or shows a token. Where events
//! come from, where progress is kept and what reports are used for is the caller's business.

mod address;
mod answer;
mod backoff;
mod deliver;
mod guard;
mod http;
mod poll;
mod signature;
mod source;
mod token;
mod webhook;

pub use address::{Special, special};
pub use backoff::Backoff;
pub use guard::{AddressGuard, Checked, Refused, resolve};
pub use http::{builder as client_builder, pinned_client, plain_client, problem};
pub use poll::{Clock, Pace, PollFailed, PollResult, Poller};
pub use signature::signature;
pub use source::{BadSource, GithubPoll, JsonPoll, PollSource, ResetIs};
pub use webhook::{Deliveries, DeliveryPace, EventSource, Hook, Progress, SourceEvent};
