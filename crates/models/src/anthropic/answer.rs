//! Reading an answer, whole or in events.

use std::collections::HashMap;

use serde_json::Value;
use tollgate_contract::text::Clean;

use crate::{
    chat::{Delta, MOST_CALLS, Usage},
    error::ModelError,
    names::Names,
    sse::Event,
    wire::{Decoder, Hide, Progress, count_of, model_name, refused_by_word},
};

/// Reads messages.
pub(super) struct Messages {
    names: Names,
    hide: Hide,
    /// The place of the call that a block is.
    calls: HashMap<u64, usize>,
    usage: Counted,
    progress: Progress,
}

/// What was used, as far as it was said.
#[derive(Debug, Default)]
struct Counted {
    input: Option<u64>,
    read: u64,
    written: u64,
    output: Option<u64>,
}

impl Counted {
    /// Takes what is news. What makes no sense is no news.
    fn read(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        let count = |name: &str| count_of(usage.get(name));
        self.input = count("input_tokens").or(self.input);
        self.output = count("output_tokens").or(self.output);
        self.read = count("cache_read_input_tokens").unwrap_or(self.read);
        self.written = count("cache_creation_input_tokens").unwrap_or(self.written);
    }

    /// All that was sent, whether or not it was at hand.
    fn usage(&self) -> Option<Usage> {
        let input_tokens = self.input?.saturating_add(self.read).saturating_add(self.written);
        let output_tokens = self.output?;
        let usage = Usage { input_tokens, output_tokens, cached_tokens: self.read };
        Some(usage).filter(|usage| usage.input_tokens > 0)
    }
}

impl Messages {
    pub(super) fn new(names: Names, hide: Hide) -> Self {
        let usage = Counted::default();
        Self { names, hide, calls: HashMap::new(), usage, progress: Progress::Going }
    }

    fn begins(&mut self, message: &Value, out: &mut Vec<Delta>) {
        if let Some(model) = message.get("model").and_then(Value::as_str) {
            out.push(Delta::Model(model_name(model)));
        }
        self.used(message.get("usage"), out);
    }

    fn used(&mut self, usage: Option<&Value>, out: &mut Vec<Delta>) {
        self.usage.read(usage);
        out.extend(self.usage.usage().map(Delta::Usage));
    }

    fn stops(&mut self, message: &Value, out: &mut Vec<Delta>) {
        if let Some(word) = message.get("stop_reason").and_then(Value::as_str) {
            self.progress = self.progress.max(Progress::Finished);
            out.push(Delta::Finish(word.to_owned()));
        }
    }

    /// A block, or its beginning.
    fn block(&mut self, at: u64, block: &Value, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        let word = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        match word("type") {
            "text" => out.extend(some(word("text")).map(Delta::Text)),
            "thinking" => out.extend(some(word("thinking")).map(Delta::Reasoning)),
            "tool_use" => {
                let index = self.calls.len();
                if index >= MOST_CALLS || self.calls.insert(at, index).is_some() {
                    let problem = format!("it has more than {MOST_CALLS} calls, or one twice");
                    return Err(ModelError::TooLarge(Clean::already(problem)));
                }
                let name = some(word("name")).map(|name| self.names.ours(&name));
                // In a stream the input follows, and this one is empty.
                let input = block.get("input").and_then(Value::as_object);
                let input = input.filter(|input| !input.is_empty());
                let arguments = input.and_then(|input| serde_json::to_string(input).ok());
                let arguments = arguments.unwrap_or_default();
                out.push(Delta::Call { index, id: some(word("id")), name, arguments });
            }
            // What is hidden or unknown says nothing.
            _ => {}
        }
        Ok(())
    }

    fn more(&mut self, at: u64, delta: &Value, out: &mut Vec<Delta>) {
        let word = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        match word("type") {
            "text_delta" => out.extend(some(word("text")).map(Delta::Text)),
            "thinking_delta" => out.extend(some(word("thinking")).map(Delta::Reasoning)),
            "input_json_delta" => {
                if let Some(index) = self.calls.get(&at).copied() {
                    let arguments = word("partial_json").to_owned();
                    out.push(Delta::Call { index, id: None, name: None, arguments });
                }
            }
            _ => {}
        }
    }
}

impl Decoder for Messages {
    fn event(&mut self, event: &Event, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        if self.progress == Progress::Over || event.data.trim().is_empty() {
            return Ok(());
        }
        let unreadable = |error: serde_json::Error| {
            ModelError::Malformed(self.hide.clean(&format!("an event is no JSON ({error})")))
        };
        let data: Value = serde_json::from_str(&event.data).map_err(unreadable)?;
        let nothing = Value::Null;
        let part = |name: &str| data.get(name).unwrap_or(&nothing);
        let at = part("index").as_u64().unwrap_or_default();
        match part("type").as_str().unwrap_or(&event.event) {
            "message_start" => self.begins(part("message"), out),
            "content_block_start" => self.block(at, part("content_block"), out)?,
            "content_block_delta" => self.more(at, part("delta"), out),
            "message_delta" => {
                self.used(data.get("usage"), out);
                self.stops(part("delta"), out);
            }
            "message_stop" => self.progress = Progress::Over,
            "error" => {
                let error = data.get("error").unwrap_or(&data);
                return Err(refused_by_word(error, &self.hide));
            }
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, answer: &Value, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
            return Err(refused_by_word(error, &self.hide));
        }
        let Some(blocks) = answer.get("content").and_then(Value::as_array) else {
            let problem =
                "it holds no `content`; check that `url` is the address of a model server";
            return Err(ModelError::Malformed(self.hide.clean(problem)));
        };
        self.begins(answer, out);
        for (at, block) in blocks.iter().enumerate() {
            self.block(at as u64, block, out)?;
        }
        self.stops(answer, out);
        self.progress = Progress::Over;
        Ok(())
    }

    fn progress(&self) -> Progress {
        self.progress
    }
}

fn some(word: &str) -> Option<String> {
    Some(word.to_owned()).filter(|word| !word.is_empty())
}
