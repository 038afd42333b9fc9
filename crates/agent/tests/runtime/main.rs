//! The model loop against a real gate, a real ledger, and a model server that follows a script.

#![cfg(test)]

mod crash;
mod hand;
mod hostile;
mod replay;
mod small;
mod soak;
mod stage;
mod turns;
