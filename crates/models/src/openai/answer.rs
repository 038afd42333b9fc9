//! Reading an answer, whole or in pieces.
//!
//! What servers leave out or write in their own way is taken as it is meant: no usage, no reason to stop, no `[DONE]`,
//! usage in a last piece without choices, arguments as an object, calls without an index or an id, reasoning under two
//! names, an error in the middle.

use serde_json::Value;

use super::calls::Calls;
use crate::{
    chat::{Delta, Usage},
    error::ModelError,
    names::Names,
    sse::Event,
    wire::{Decoder, Hide, Progress, count_of, model_name, refused_by_word},
};

/// What servers say when nothing follows.
const DONE: &str = "[DONE]";

/// Reads chat completions.
pub(super) struct Completions {
    names: Names,
    hide: Hide,
    calls: Calls,
    progress: Progress,
    model_known: bool,
}

impl Completions {
    pub(super) fn new(names: Names, hide: Hide) -> Self {
        let (calls, progress) = (Calls::default(), Progress::Going);
        Self { names, hide, calls, progress, model_known: false }
    }

    /// Reads a completion, or a piece of one: they differ in where the message is.
    fn read(&mut self, answer: &Value, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
            return Err(refused_by_word(error, &self.hide));
        }
        if !self.model_known
            && let Some(model) = answer.get("model").and_then(Value::as_str)
            && !model.is_empty()
        {
            self.model_known = true;
            out.push(Delta::Model(model_name(model)));
        }
        // One answer was asked for.
        let choice = answer.get("choices").and_then(|choices| choices.get(0));
        if let Some(choice) = choice {
            if let Some(message) = choice.get("delta").or_else(|| choice.get("message")) {
                self.message(message, out)?;
            }
            if let Some(word) = choice.get("finish_reason").and_then(Value::as_str)
                && !word.is_empty()
            {
                self.progress = self.progress.max(Progress::Finished);
                out.push(Delta::Finish(word.to_owned()));
            }
        }
        if let Some(usage) = answer.get("usage").and_then(usage) {
            out.push(Delta::Usage(usage));
        }
        Ok(())
    }

    fn message(&mut self, message: &Value, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        let word = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
        // Where both names are there, they say the same.
        let reasoning = [word("reasoning_content"), word("reasoning")];
        if let Some(reasoning) = reasoning.into_iter().find(|text| !text.is_empty()) {
            out.push(Delta::Reasoning(reasoning.to_owned()));
        }
        for text in [text(message.get("content")), word("refusal").to_owned()] {
            if !text.is_empty() {
                out.push(Delta::Text(text));
            }
        }
        let calls = message.get("tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            self.call(call, out)?;
        }
        Ok(())
    }

    fn call(&mut self, call: &Value, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        let function = call.get("function").unwrap_or(&Value::Null);
        let word = |value: Option<&Value>| {
            value.and_then(Value::as_str).filter(|word| !word.is_empty()).map(str::to_owned)
        };
        let (id, name) = (word(call.get("id")), word(function.get("name")));
        let index = call.get("index").and_then(Value::as_u64);
        let (index, names) = self.calls.place(index, id.as_deref(), name.is_some())?;
        let arguments = match function.get("arguments") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let name = name.filter(|_| names).map(|name| self.names.ours(&name));
        out.push(Delta::Call { index, id, name, arguments });
        Ok(())
    }
}

impl Decoder for Completions {
    fn event(&mut self, event: &Event, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        let data = event.data.trim();
        if data == DONE {
            self.progress = Progress::Over;
            return Ok(());
        }
        if self.progress == Progress::Over || data.is_empty() {
            return Ok(());
        }
        let unreadable = |error: serde_json::Error| {
            ModelError::Malformed(self.hide.clean(&format!("an event is no JSON ({error})")))
        };
        let value: Value = serde_json::from_str(data).map_err(unreadable)?;
        if event.event == "error" && value.get("error").is_none() {
            return Err(refused_by_word(&value, &self.hide));
        }
        self.read(&value, out)
    }

    fn whole(&mut self, answer: &Value, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        self.read(answer, out)?;
        if answer.get("choices").and_then(|choices| choices.get(0)).is_none() {
            let problem =
                "it holds no `choices`; check that `url` is the address of a model server";
            return Err(ModelError::Malformed(self.hide.clean(problem)));
        }
        self.progress = Progress::Over;
        Ok(())
    }

    fn progress(&self) -> Progress {
        self.progress
    }
}

/// Text, or the texts of its parts.
fn text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text")?.as_str()).collect()
        }
        _ => String::new(),
    }
}

/// What was used, if it makes sense. Nobody sends a request without a token.
fn usage(usage: &Value) -> Option<Usage> {
    let input_tokens = count_of(usage.get("prompt_tokens")).filter(|count| *count > 0)?;
    let output_tokens = count_of(usage.get("completion_tokens"))?;
    let details = usage.get("prompt_tokens_details");
    let cached = count_of(details.and_then(|details| details.get("cached_tokens")));
    let cached_tokens = cached.unwrap_or(0).min(input_tokens);
    Some(Usage { input_tokens, output_tokens, cached_tokens })
}
