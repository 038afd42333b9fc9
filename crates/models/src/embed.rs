//! Texts as vectors, by a server that speaks as OpenAI's does.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tollgate_contract::text::Clean;

use crate::{
    error::ModelError,
    wire::{Ask, Limits, Transport, count_of, model_name, refused_answer, whole},
};

/// The most texts of one request, and the most numbers of one vector.
pub const MOST_TEXTS: usize = 256;
const MOST_NUMBERS: usize = 8_192;

/// What makes embeddings.
pub(crate) struct Embedder {
    transport: Arc<dyn Transport>,
    limits: Limits,
    model: String,
}

/// Texts as vectors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Embedded {
    pub(crate) model: String,
    pub(crate) vectors: Vec<Vec<f32>>,
    /// How many tokens were read, if the server says so and it makes sense.
    pub(crate) tokens: Option<u64>,
}

impl Embedder {
    pub(crate) fn new(transport: Arc<dyn Transport>, limits: Limits, model: String) -> Self {
        Self { transport, limits, model }
    }

    /// The vectors of these texts, in their order. What the server says of its limits goes to `heard`.
    pub(crate) async fn embed(
        &self,
        texts: &[String],
        cancel: &CancellationToken,
        heard: impl Fn(&[(String, String)]),
    ) -> Result<Embedded, ModelError> {
        let limit = self.limits.timeout;
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ModelError::Cancelled),
            done = timeout(limit, self.asked(texts, heard)) => {
                done.unwrap_or(Err(ModelError::Timeout(limit)))
            }
        }
    }

    async fn asked(
        &self,
        texts: &[String],
        heard: impl Fn(&[(String, String)]),
    ) -> Result<Embedded, ModelError> {
        let body = json!({"model": self.model, "input": texts, "encoding_format": "float"});
        let answer = self.transport.ask(Ask { path: "embeddings", body: Some(body) }).await?;
        heard(&answer.headers);
        if !(200..300).contains(&answer.status) {
            return Err(refused_answer(answer, self.limits).await);
        }
        let answer = whole(answer, self.limits).await?;
        let vectors = vectors(&answer, texts.len())
            .map_err(|problem| ModelError::Malformed(Clean::already(problem)))?;
        let named = answer.get("model").and_then(Value::as_str).map(model_name);
        let model = named.filter(|name| !name.is_empty()).unwrap_or_else(|| self.model.clone());
        let usage = answer.get("usage").and_then(|usage| usage.get("prompt_tokens"));
        Ok(Embedded { model, vectors, tokens: count_of(usage).filter(|count| *count > 0) })
    }
}

/// The vectors of an answer: one for each text, all of the same length, all of them numbers.
fn vectors(answer: &Value, texts: usize) -> Result<Vec<Vec<f32>>, String> {
    let data = answer.get("data").and_then(Value::as_array).ok_or("it holds no `data`")?;
    if data.len() != texts {
        return Err(format!("{} vectors came for {texts} texts", data.len()));
    }
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; texts];
    for (at, entry) in data.iter().enumerate() {
        let index = entry.get("index").and_then(Value::as_u64);
        let index = index.map_or(at, |index| usize::try_from(index).unwrap_or(usize::MAX));
        let place = vectors.get_mut(index).filter(|place| place.is_none());
        let place = place.ok_or("a vector belongs to no text, or two belong to one")?;
        let numbers = entry.get("embedding").and_then(Value::as_array);
        *place = Some(numbers.and_then(|numbers| vector(numbers)).ok_or_else(|| {
            format!("a vector is not from 1 to {MOST_NUMBERS} numbers, each of them finite")
        })?);
    }
    let vectors: Vec<Vec<f32>> = vectors.into_iter().flatten().collect();
    let length = vectors.first().map_or(0, Vec::len);
    if vectors.iter().any(|vector| vector.len() != length) {
        return Err("the vectors are not of the same length".to_owned());
    }
    Ok(vectors)
}

fn vector(numbers: &[Value]) -> Option<Vec<f32>> {
    if !(1..=MOST_NUMBERS).contains(&numbers.len()) {
        return None;
    }
    let number = |value: &Value| Some(value.as_f64()? as f32).filter(|number| number.is_finite());
    numbers.iter().map(number).collect()
}

#[cfg(test)]
#[path = "embed_tests.rs"]
mod tests;
