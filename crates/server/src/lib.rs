//! The doors that listen. Here: the HTTP API.
//!
//! A door translates. [`endpoint`] makes the routes and their OpenAPI description from one table,
//! [`api`] holds what each route does, [`request`] finds out who asks, and [`listen`] keeps slow and
//! greedy clients in bounds. Every rule is the gate's.

mod api;
mod app;
mod endpoint;
mod listen;
mod openapi;
mod reply;
mod request;
mod stalled;
mod webhooks;

pub use app::{Reload, Server, Settings};
pub use listen::{Address, AddressError, BindError, Listening};

/// The OpenAPI description of the HTTP API, as it is served.
pub fn openapi() -> serde_json::Value {
    openapi::document(&api::endpoints())
}
