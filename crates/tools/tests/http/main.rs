//! `http.get` against real servers on this machine that do what servers should not.

#![cfg(test)]

mod cache;
mod hostile;
mod names;
mod pages;
mod secure;
mod support;
