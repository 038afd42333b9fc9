//! Puts the pieces of an answer together.

use futures_util::StreamExt;
use tollgate_contract::text::Clean;

use crate::{
    backend::Deltas,
    chat::{ChatResponse, Delta, Finish, MOST_CALLS, NativeCall},
    error::ModelError,
};

/// The most bytes of one call's arguments, of an id and of a name.
const LARGEST_ARGUMENTS: usize = 1024 * 1024;
const LONGEST_NAME: usize = 256;

/// The most bytes of text and reasoning together.
const LARGEST_TEXT: usize = 16 * 1024 * 1024;

/// An answer as far as it has come.
#[derive(Debug, Default)]
pub struct Collector {
    response: ChatResponse,
    finish: Option<Finish>,
    /// How many bytes came and were left out.
    dropped: usize,
}

impl Collector {
    /// Adds a piece, if there is room for it.
    pub fn push(&mut self, delta: &Delta) -> Result<(), ModelError> {
        let response = &mut self.response;
        match delta {
            Delta::Text(text) | Delta::Reasoning(text) => {
                if response.content.len() + response.reasoning.len() + text.len() > LARGEST_TEXT {
                    return Err(too_large(format!("its text has more than {LARGEST_TEXT} bytes")));
                }
                match delta {
                    Delta::Text(_) => response.content.push_str(text),
                    _ => response.reasoning.push_str(text),
                }
            }
            Delta::Call { index, id, name, arguments } => {
                let call = self.call(*index)?;
                set_once(&mut call.id, id.as_deref())?;
                set_once(&mut call.name, name.as_deref())?;
                if call.arguments.len() + arguments.len() > LARGEST_ARGUMENTS {
                    let problem = format!("a call has more than {LARGEST_ARGUMENTS} bytes");
                    return Err(too_large(problem));
                }
                call.arguments.push_str(arguments);
            }
            Delta::Usage(usage) => response.usage = Some(*usage),
            Delta::Finish(word) => self.finish = Some(Finish::of(word)),
            Delta::Model(model) => response.model.clone_from(model),
            Delta::Headers(_) => {}
        }
        Ok(())
    }

    fn call(&mut self, index: usize) -> Result<&mut NativeCall, ModelError> {
        let calls = &mut self.response.tool_calls;
        if index < MOST_CALLS && index >= calls.len() {
            calls.resize_with(index + 1, NativeCall::default);
        }
        let calls = calls.get_mut(index).filter(|_| index < MOST_CALLS);
        calls.ok_or_else(|| too_large(format!("it has more than {MOST_CALLS} calls")))
    }

    /// How many bytes it has, its calls and reasoning included.
    pub(crate) fn bytes(&self) -> usize {
        let calls = self.response.tool_calls.iter().map(|call| call.arguments.len());
        self.response.content.len() + self.response.reasoning.len() + calls.sum::<usize>()
    }

    /// The answer ends here, whatever else would have come. So many bytes had come already, and are left out.
    pub(crate) fn cut(&mut self, dropped: usize) {
        self.finish = Some(Finish::Length);
        self.dropped = dropped;
    }

    /// How many bytes came and were left out.
    pub(crate) fn dropped(&self) -> usize {
        self.dropped
    }

    /// The answer as far as it has come.
    pub fn so_far(&self) -> &ChatResponse {
        &self.response
    }

    /// The whole answer.
    pub fn finish(self) -> ChatResponse {
        let mut response = self.response;
        // A place that was skipped is no call.
        response.tool_calls.retain(|call| !call.name.is_empty());
        for (at, call) in response.tool_calls.iter_mut().enumerate() {
            if call.id.is_empty() {
                call.id = format!("call_{at}");
            }
            if call.arguments.trim().is_empty() {
                call.arguments = "{}".to_owned();
            }
        }
        // Some servers say that they stopped, or nothing, where they want an answer to their calls.
        let silent = matches!(self.finish, None | Some(Finish::Stop));
        response.finish = match self.finish {
            _ if silent && !response.tool_calls.is_empty() => Finish::ToolCalls,
            Some(finish) => finish,
            None => Finish::Stop,
        };
        response
    }
}

/// Puts all pieces of a stream together.
pub async fn collect(mut deltas: Deltas) -> Result<ChatResponse, ModelError> {
    let mut collector = Collector::default();
    while let Some(delta) = deltas.next().await {
        collector.push(&delta?)?;
    }
    Ok(collector.finish())
}

/// What servers repeat with every piece counts once.
fn set_once(place: &mut String, word: Option<&str>) -> Result<(), ModelError> {
    let Some(word) = word else { return Ok(()) };
    if word.len() > LONGEST_NAME {
        return Err(too_large(format!("a call's name or id has more than {LONGEST_NAME} bytes")));
    }
    if place.is_empty() {
        place.push_str(word);
    }
    Ok(())
}

fn too_large(problem: String) -> ModelError {
    ModelError::TooLarge(Clean::already(problem))
}

#[cfg(test)]
#[path = "collect_tests.rs"]
mod tests;
