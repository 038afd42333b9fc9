//! What each route does, one file for each part of the API.

mod approvals;
mod calls;
mod capabilities;
mod contracts;
mod events;
mod forecast;
mod governor;
mod health;
mod intents;
mod keys;
mod memory;
mod sessions;
mod tools;
mod trends;
mod webhooks;
mod what_if;

pub(crate) use contracts::ServedManifest;
pub(crate) use intents::direct;

use crate::endpoint::Endpoint;

/// Every endpoint.
pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut all = Vec::new();
    all.extend(contracts::endpoints());
    all.extend(tools::endpoints());
    all.extend(calls::endpoints());
    all.extend(approvals::endpoints());
    all.extend(capabilities::endpoints());
    all.extend(sessions::endpoints());
    all.extend(memory::endpoints());
    all.extend(events::endpoints());
    all.extend(intents::endpoints());
    all.extend(governor::endpoints());
    all.extend(forecast::endpoints());
    all.extend(what_if::endpoints());
    all.extend(trends::endpoints());
    all.extend(webhooks::endpoints());
    all.extend(keys::endpoints());
    all.extend(health::endpoints());
    all
}
