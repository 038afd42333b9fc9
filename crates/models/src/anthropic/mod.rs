//! Anthropic's messages.

mod answer;

use serde_json::{Map, Value, json};

use crate::{
    chat::{ChatRequest, NativeCall, ToolSpec},
    conversation::{Turn, arguments, turns},
    names::Names,
    wire::{Decoder, Hide, Protocol},
};

/// The version of the protocol.
pub(crate) const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// The protocol.
#[derive(Debug, Default)]
pub(crate) struct Anthropic;

impl Protocol for Anthropic {
    fn path(&self) -> &'static str {
        "v1/messages"
    }

    fn request(&self, request: &ChatRequest, names: &Names, model: &str, stream: bool) -> Value {
        // Calls can only be shown together with tools.
        let turns = turns(&request.messages, !request.tools.is_empty());
        let system: Vec<&str> = turns
            .iter()
            .filter_map(|turn| match turn {
                Turn::System(text) if !text.trim().is_empty() => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(model));
        body.insert("max_tokens".to_owned(), json!(request.max_tokens));
        if !system.is_empty() {
            body.insert("system".to_owned(), json!(system.join("\n\n")));
        }
        body.insert("messages".to_owned(), Value::Array(messages(&turns, names)));
        if let Some(temperature) = request.temperature {
            // The scale ends earlier here.
            body.insert("temperature".to_owned(), json!(temperature.min(1.0)));
        }
        if !request.tools.is_empty() {
            let tool = |tool: &ToolSpec| {
                let name = names.wire(&tool.name);
                json!({"name": name, "description": tool.description, "input_schema": tool.parameters})
            };
            body.insert("tools".to_owned(), request.tools.iter().map(tool).collect());
        }
        body.insert("stream".to_owned(), json!(stream));
        Value::Object(body)
    }

    fn again(&self, _: &str, _: &mut Value) -> bool {
        false
    }

    fn decoder(&self, names: Names, hide: Hide) -> Box<dyn Decoder> {
        Box::new(answer::Messages::new(names, hide))
    }
}

/// The conversation with the roles in turns, the user's first. Empty texts are not taken, so they are left out.
fn messages(turns: &[Turn], names: &Names) -> Vec<Value> {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for turn in turns {
        let (role, blocks) = match turn {
            Turn::System(_) => continue,
            Turn::User(content) => ("user", text(content)),
            Turn::Assistant(content, calls) => {
                let call = |call: &NativeCall| {
                    json!({"type": "tool_use", "id": id(&call.id), "name": names.wire(&call.name),
                        "input": arguments(call)})
                };
                // Trailing spaces are not taken at the end of what the model said.
                let text = text(content.trim_end());
                ("assistant", text.into_iter().chain(calls.iter().map(call)).collect())
            }
            Turn::Result(call, content) => {
                let result = json!({"type": "tool_result", "tool_use_id": id(call),
                    "content": content});
                ("user", vec![result])
            }
        };
        match messages.last_mut() {
            _ if blocks.is_empty() => {}
            Some((last, known)) if *last == role => known.extend(blocks),
            _ => messages.push((role, blocks)),
        }
    }
    if messages.first().is_none_or(|(role, _)| *role != "user") {
        messages.insert(0, ("user", text("Go on.")));
    }
    messages.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

fn text(text: &str) -> Vec<Value> {
    if text.trim().is_empty() { Vec::new() } else { vec![json!({"type": "text", "text": text})] }
}

/// Ids of other servers have other characters.
fn id(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let id: String = id.chars().map(plain).collect();
    if id.is_empty() { "_".to_owned() } else { id }
}
