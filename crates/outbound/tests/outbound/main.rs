//! What leaves the gate, against real servers on this machine.

#![cfg(test)]

mod poll;
mod support;
mod webhook;
