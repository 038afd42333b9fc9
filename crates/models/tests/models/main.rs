//! The client against the fake model and against servers that do what servers should not, and the tools behind a
//! real gate.

#![cfg(test)]

mod anthropic;
mod fake;
mod gate;
mod hostile;
mod openai;
mod support;
