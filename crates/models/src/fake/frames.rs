//! A reply as the bytes of an answer, in either protocol.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{ask::Asked, script::Reply};
use crate::tokens::Tokenizer;

/// Which protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    OpenAi,
    Anthropic,
}

/// How much of the last message a reply repeats.
const REPEATED: usize = 200;

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Reasoning(String),
    Text(String),
    Call { at: usize, id: String, name: String },
    Arguments { at: usize, text: String },
}

/// A reply that is ready to be written.
pub(super) struct Line {
    pieces: Vec<Piece>,
    content: String,
    reasoning: String,
    calls: Vec<(String, String, Value)>,
    finish: String,
    usage: Option<Value>,
    model: String,
    number: u64,
}

impl Line {
    pub(super) fn new(
        reply: &Reply,
        asked: &Asked,
        speaks: Speaks,
        model: &str,
        number: u64,
    ) -> Self {
        let last: String = asked.last.chars().take(REPEATED).collect();
        let filled =
            |text: &str| text.replace("{{n}}", &number.to_string()).replace("{{last}}", &last);
        let texts: Vec<String> = match &reply.chunks {
            Some(chunks) => chunks.iter().map(|chunk| filled(chunk)).collect(),
            None => cut(&filled(&reply.content), reply.chunk),
        };
        let reasoning = filled(&reply.reasoning);
        let mut pieces: Vec<Piece> =
            cut(&reasoning, reply.chunk).into_iter().map(Piece::Reasoning).collect();
        pieces.extend(texts.iter().cloned().map(Piece::Text));
        let mut calls = Vec::new();
        for (at, call) in reply.tool_calls.iter().enumerate() {
            let id = call.id.clone().unwrap_or_else(|| format!("call_{number}_{at}"));
            let name = call.name.replace('.', "__");
            let text = match &call.arguments {
                Value::String(text) => text.clone(),
                Value::Null => "{}".to_owned(),
                other => other.to_string(),
            };
            pieces.push(Piece::Call { at, id: id.clone(), name: name.clone() });
            let arguments = cut(&text, reply.chunk).into_iter();
            pieces.extend(arguments.map(|text| Piece::Arguments { at, text }));
            calls.push((id, name, Value::String(text)));
        }
        let content = texts.concat();
        let finish = reply.finish.clone().unwrap_or_else(|| usual(speaks, !calls.is_empty()));
        let usage = match &reply.usage {
            Some(Value::Null) => None,
            Some(usage) => Some(usage.clone()),
            None => Some(estimated(speaks, asked.length, &content, &reasoning)),
        };
        let model = model.to_owned();
        Self { pieces, content, reasoning, calls, finish, usage, model, number }
    }

    /// The events of a stream: one for each piece, and then those that end it.
    pub(super) fn streamed(&self, speaks: Speaks) -> (Vec<Bytes>, Vec<Bytes>) {
        match speaks {
            Speaks::OpenAi => self.openai(),
            Speaks::Anthropic => self.anthropic(),
        }
    }

    /// The answer in one piece.
    pub(super) fn whole(&self, speaks: Speaks) -> Value {
        match speaks {
            Speaks::OpenAi => {
                let call = |(id, name, arguments): &(String, String, Value)| {
                    json!({"id": id, "type": "function",
                        "function": {"name": name, "arguments": arguments}})
                };
                let mut message = json!({"role": "assistant", "content": self.content});
                if !self.reasoning.is_empty() {
                    put(&mut message, "reasoning_content", json!(self.reasoning));
                }
                if !self.calls.is_empty() {
                    put(&mut message, "tool_calls", self.calls.iter().map(call).collect());
                }
                let choice = json!({"index": 0, "message": message, "finish_reason": self.finish});
                let mut answer = json!({"id": self.id(), "object": "chat.completion",
                    "model": self.model, "choices": [choice]});
                if let Some(usage) = &self.usage {
                    put(&mut answer, "usage", usage.clone());
                }
                answer
            }
            Speaks::Anthropic => {
                let mut blocks = Vec::new();
                if !self.reasoning.is_empty() {
                    blocks.push(json!({"type": "thinking", "thinking": self.reasoning}));
                }
                if !self.content.is_empty() {
                    blocks.push(json!({"type": "text", "text": self.content}));
                }
                blocks.extend(self.calls.iter().map(|(id, name, arguments)| {
                    let text = arguments.as_str().unwrap_or_default();
                    let input: Value = serde_json::from_str(text).unwrap_or_else(|_| json!({}));
                    json!({"type": "tool_use", "id": id, "name": name, "input": input})
                }));
                let mut answer = json!({"id": self.id(), "type": "message", "role": "assistant",
                    "model": self.model, "content": blocks, "stop_reason": self.finish});
                if let Some(usage) = &self.usage {
                    put(&mut answer, "usage", usage.clone());
                }
                answer
            }
        }
    }

    fn id(&self) -> String {
        format!("fake_{}", self.number)
    }

    fn openai(&self) -> (Vec<Bytes>, Vec<Bytes>) {
        let chunk = |choices: Value| {
            json!({"id": self.id(), "object": "chat.completion.chunk", "model": self.model,
                "choices": choices})
        };
        let delta = |delta: Value| {
            data(&chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}])))
        };
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Reasoning(text) => delta(json!({"reasoning_content": text})),
            Piece::Text(text) => delta(json!({"content": text})),
            Piece::Call { at, id, name } => delta(json!({"tool_calls": [{"index": at, "id": id,
                "type": "function", "function": {"name": name, "arguments": ""}}]})),
            Piece::Arguments { at, text } => {
                delta(json!({"tool_calls": [{"index": at, "function": {"arguments": text}}]}))
            }
        });
        let pieces = pieces.collect();
        let stop = json!([{"index": 0, "delta": {}, "finish_reason": self.finish}]);
        let mut end = vec![data(&chunk(stop))];
        if let Some(usage) = &self.usage {
            let mut last = chunk(json!([]));
            put(&mut last, "usage", usage.clone());
            end.push(data(&last));
        }
        end.push(Bytes::from_static(b"data: [DONE]\n\n"));
        (pieces, end)
    }

    fn anthropic(&self) -> (Vec<Bytes>, Vec<Bytes>) {
        let count = |name: &str| self.usage.as_ref().and_then(|usage| usage.get(name)).cloned();
        let mut message = json!({"id": self.id(), "type": "message", "role": "assistant",
            "model": self.model, "content": [], "stop_reason": null});
        if let Some(usage) = &self.usage {
            let mut usage = usage.clone();
            put(&mut usage, "output_tokens", json!(1));
            put(&mut message, "usage", usage);
        }
        let start = event("message_start", json!({"message": message}));
        let mut waiting = [start, event("ping", json!({}))].concat();
        let mut pieces = Vec::new();
        let mut open: Option<(usize, Block)> = None;
        for piece in &self.pieces {
            let block = Block::of(piece);
            if open.is_none_or(|(_, known)| known != block) {
                let at = open.map_or(0, |(at, _)| at + 1);
                if open.is_some() {
                    waiting.extend(event("content_block_stop", json!({"index": at - 1})));
                }
                let begins = json!({"index": at, "content_block": block.begins(piece)});
                waiting.extend(event("content_block_start", begins));
                open = Some((at, block));
            }
            let at = open.map_or(0, |(at, _)| at);
            if let Some(delta) = more(piece) {
                let delta = json!({"index": at, "delta": delta});
                waiting.extend(event("content_block_delta", delta));
            }
            pieces.push(Bytes::from(std::mem::take(&mut waiting)));
        }
        if let Some((at, _)) = open {
            waiting.extend(event("content_block_stop", json!({"index": at})));
        }
        let mut stop = json!({"delta": {"stop_reason": self.finish}});
        if let Some(output) = count("output_tokens") {
            put(&mut stop, "usage", json!({"output_tokens": output}));
        }
        waiting.extend(event("message_delta", stop));
        let end = vec![Bytes::from(waiting), Bytes::from(event("message_stop", json!({})))];
        (pieces, end)
    }
}

/// What a piece belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
    Call(usize),
}

impl Block {
    fn of(piece: &Piece) -> Self {
        match piece {
            Piece::Reasoning(_) => Self::Thinking,
            Piece::Text(_) => Self::Text,
            Piece::Call { at, .. } | Piece::Arguments { at, .. } => Self::Call(*at),
        }
    }

    fn begins(self, piece: &Piece) -> Value {
        match (self, piece) {
            (Self::Thinking, _) => json!({"type": "thinking", "thinking": ""}),
            (_, Piece::Call { id, name, .. }) => {
                json!({"type": "tool_use", "id": id, "name": name, "input": {}})
            }
            _ => json!({"type": "text", "text": ""}),
        }
    }
}

fn more(piece: &Piece) -> Option<Value> {
    match piece {
        Piece::Reasoning(text) => Some(json!({"type": "thinking_delta", "thinking": text})),
        Piece::Text(text) => Some(json!({"type": "text_delta", "text": text})),
        Piece::Arguments { text, .. } => {
            Some(json!({"type": "input_json_delta", "partial_json": text}))
        }
        Piece::Call { .. } => None,
    }
}

fn data(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

fn event(name: &str, mut data: Value) -> Vec<u8> {
    put(&mut data, "type", json!(name));
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}

fn put(object: &mut Value, name: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

/// Pieces of so many characters, or all in one.
fn cut(text: &str, size: Option<usize>) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let Some(size) = size else { return vec![text.to_owned()] };
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(size.max(1)).map(|piece| piece.iter().collect()).collect()
}

fn usual(speaks: Speaks, calls: bool) -> String {
    match (speaks, calls) {
        (Speaks::OpenAi, false) => "stop",
        (Speaks::OpenAi, true) => "tool_calls",
        (Speaks::Anthropic, false) => "end_turn",
        (Speaks::Anthropic, true) => "tool_use",
    }
    .to_owned()
}

fn estimated(speaks: Speaks, asked: usize, content: &str, reasoning: &str) -> Value {
    let input = (asked as u64).div_ceil(4).max(1);
    let output = Tokenizer::Estimate.count(content) + Tokenizer::Estimate.count(reasoning);
    match speaks {
        Speaks::OpenAi => json!({"prompt_tokens": input, "completion_tokens": output,
            "total_tokens": input + output}),
        Speaks::Anthropic => json!({"input_tokens": input, "output_tokens": output}),
    }
}
