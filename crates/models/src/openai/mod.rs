//! Servers that speak as OpenAI's chat completions do: llama.cpp, Ollama, vLLM and OpenAI itself.
//!
//! They agree on the shape and differ in the details, so that an answer is read with patience: see
//! [`answer`](answer::Completions).

mod answer;
mod calls;

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    chat::{ChatRequest, NativeCall},
    conversation::{Turn, arguments, turns},
    names::Names,
    wire::{Decoder, Hide, Protocol},
};

/// What the server calls the bound of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// What most know.
    #[default]
    MaxTokens,
    /// What OpenAI's newer models want.
    MaxCompletionTokens,
}

impl MaxTokensField {
    fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

const STREAM_OPTIONS: &str = "stream_options";

/// The protocol.
#[derive(Debug, Default)]
pub(crate) struct OpenAi {
    max_tokens: MaxTokensField,
    /// The server has said that it does not know `stream_options`.
    plain_stream: AtomicBool,
    /// The server has said that it wants the newer name.
    newer_name: AtomicBool,
}

impl OpenAi {
    pub(crate) fn new(max_tokens: MaxTokensField) -> Self {
        Self { max_tokens, ..Self::default() }
    }

    fn max_tokens_field(&self) -> &'static str {
        let newer = self.newer_name.load(Ordering::Relaxed);
        if newer { MaxTokensField::MaxCompletionTokens } else { self.max_tokens }.as_str()
    }
}

impl Protocol for OpenAi {
    fn path(&self) -> &'static str {
        "chat/completions"
    }

    fn request(&self, request: &ChatRequest, names: &Names, model: &str, stream: bool) -> Value {
        let messages = turns(&request.messages, true);
        let messages: Vec<Value> = messages.into_iter().map(|turn| message(turn, names)).collect();
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(model));
        body.insert("messages".to_owned(), Value::Array(messages));
        body.insert(self.max_tokens_field().to_owned(), json!(request.max_tokens));
        if let Some(temperature) = request.temperature {
            body.insert("temperature".to_owned(), json!(temperature));
        }
        if !request.tools.is_empty() {
            let tool = |tool: &crate::chat::ToolSpec| {
                json!({"type": "function", "function": {
                    "name": names.wire(&tool.name),
                    "description": tool.description,
                    "parameters": tool.parameters,
                }})
            };
            body.insert("tools".to_owned(), request.tools.iter().map(tool).collect());
        }
        body.insert("stream".to_owned(), json!(stream));
        if stream && !self.plain_stream.load(Ordering::Relaxed) {
            body.insert(STREAM_OPTIONS.to_owned(), json!({"include_usage": true}));
        }
        Value::Object(body)
    }

    fn again(&self, said: &str, body: &mut Value) -> bool {
        let Some(body) = body.as_object_mut() else { return false };
        if said.contains(STREAM_OPTIONS) && body.remove(STREAM_OPTIONS).is_some() {
            self.plain_stream.store(true, Ordering::Relaxed);
            return true;
        }
        let (older, newer) = (MaxTokensField::MaxTokens, MaxTokensField::MaxCompletionTokens);
        if said.contains(newer.as_str())
            && let Some(most) = body.remove(older.as_str())
        {
            body.insert(newer.as_str().to_owned(), most);
            self.newer_name.store(true, Ordering::Relaxed);
            return true;
        }
        false
    }

    fn decoder(&self, names: Names, hide: Hide) -> Box<dyn Decoder> {
        Box::new(answer::Completions::new(names, hide))
    }
}

fn message(turn: Turn, names: &Names) -> Value {
    match turn {
        Turn::System(content) => json!({"role": "system", "content": content}),
        Turn::User(content) => json!({"role": "user", "content": content}),
        Turn::Assistant(content, calls) if calls.is_empty() => {
            json!({"role": "assistant", "content": content})
        }
        Turn::Assistant(content, calls) => {
            let call = |call: &NativeCall| {
                json!({"id": call.id, "type": "function", "function": {
                    "name": names.wire(&call.name),
                    "arguments": arguments(call).to_string(),
                }})
            };
            let calls: Vec<Value> = calls.iter().map(call).collect();
            json!({"role": "assistant", "content": content, "tool_calls": calls})
        }
        Turn::Result(id, content) => {
            json!({"role": "tool", "tool_call_id": id, "content": content})
        }
    }
}
