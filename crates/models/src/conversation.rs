//! A conversation as servers want it: every call answered, every answer to a call.
//!
//! Servers refuse a call that nobody answered, and an answer to a call that nobody made. Both happen: the text protocol
//! has answers without calls, and a crash leaves calls without answers. So calls without an answer are left out, and an
//! answer without a call is what the user says.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::chat::{Message, NativeCall, Role};

/// What stands before the result of a tool that the user passes on.
const RESULT: &str = "TOOL RESULT\n";

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    /// From whoever runs the agent.
    System(String),
    /// From the person, or a tool's result in the text protocol.
    User(String),
    /// From the model, with the calls that are answered right behind it.
    Assistant(String, Vec<NativeCall>),
    /// The answer to a call of the model's message before.
    Result(String, String),
}

/// The conversation as it goes over the wire. `native` says whether calls can be shown as such.
pub(crate) fn turns(messages: &[Message], native: bool) -> Vec<Turn> {
    let mut turns = Vec::with_capacity(messages.len());
    // The calls that the model's last message made and that wait for their answer.
    let mut open: HashSet<&str> = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let content = message.content.clone();
        if message.role != Role::Tool {
            open.clear();
        }
        turns.push(match message.role {
            Role::System => Turn::System(content),
            Role::User => Turn::User(content),
            Role::Assistant => {
                let behind = messages.get(at + 1..).unwrap_or_default();
                let calls = if native { answered(message, behind) } else { Vec::new() };
                open.extend(calls.iter().map(|call| call.id.as_str()));
                Turn::Assistant(content, calls.into_iter().cloned().collect())
            }
            Role::Tool => match message.tool_call_id.as_deref() {
                Some(id) if open.remove(id) => Turn::Result(id.to_owned(), content),
                _ => Turn::User(format!("{RESULT}{content}")),
            },
        });
    }
    results_first(&mut turns);
    turns
}

/// The calls of a message that the results behind it answer, each once.
fn answered<'a>(message: &'a Message, behind: &[Message]) -> Vec<&'a NativeCall> {
    let results = behind.iter().take_while(|message| message.role == Role::Tool);
    let mut answers: HashSet<&str> =
        results.filter_map(|message| message.tool_call_id.as_deref()).collect();
    message.tool_calls.iter().filter(|call| answers.remove(call.id.as_str())).collect()
}

/// The answers to calls stand right behind them: what else came in between follows.
fn results_first(turns: &mut [Turn]) {
    let is_plain = |turn: &Turn| matches!(turn, Turn::User(_));
    let is_behind = |turn: &Turn| matches!(turn, Turn::User(_) | Turn::Result(..));
    for run in turns.chunk_by_mut(|a, b| is_behind(a) && is_behind(b)) {
        if run.iter().any(|turn| !is_plain(turn)) {
            // Stable: each kind keeps its order.
            run.sort_by_key(is_plain);
        }
    }
}

/// The arguments of a call as an object, whatever the model wrote: servers read them again.
pub(crate) fn arguments(call: &NativeCall) -> Value {
    match serde_json::from_str(&call.arguments) {
        Ok(Value::Object(members)) => Value::Object(members),
        _ if call.arguments.trim().is_empty() => json!({}),
        _ => json!({"invalid_json": call.arguments}),
    }
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
