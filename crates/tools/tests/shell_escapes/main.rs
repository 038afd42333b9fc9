#![cfg(test)]
//! Tries to get out of `shell.exec`, with the real tools on the real kernel, as root and as somebody else. Where
//! the kernel lacks what the sandbox needs, these fail.

mod files;
mod git;
mod network;
mod processes;
mod resources;
mod stage;
mod words;
