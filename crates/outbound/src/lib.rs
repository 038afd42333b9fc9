//! What the gate sends to the outside of its own accord: polls of providers.
//!
//! A [`Poller`] asks one provider again and again how much is left, and hands over what it says. It neither
//! follows a redirect nor takes a proxy from the environment nor shows a token. What reports are used for is the
//! caller's business.

mod answer;
mod backoff;
mod http;
mod poll;
mod source;
mod token;

pub use backoff::Backoff;
pub use http::plain_client;
pub use poll::{Clock, Pace, PollFailed, PollResult, Poller};
pub use source::{BadSource, GithubPoll, JsonPoll, PollSource, ResetIs};
