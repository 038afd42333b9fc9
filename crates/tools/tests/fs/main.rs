//! The file tools against everything that tries to get out of a workspace, or to leave one half written.

#![cfg(test)]

mod crash;
mod escape;
mod limits;
mod support;
mod tools;
