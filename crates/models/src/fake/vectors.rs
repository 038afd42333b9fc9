//! Embeddings without a model: a bag of hashed words, so that texts with the same words are near.

use serde_json::{Value, json};

/// The numbers of one vector.
const DIMENSIONS: usize = 256;

/// The answer to a request for embeddings.
pub(super) fn answer(body: &Value, model: &str) -> Value {
    let texts: Vec<&str> = match body.get("input") {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(texts)) => texts.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let length: usize = texts.iter().map(|text| text.len().div_ceil(4)).sum();
    let data: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(at, text)| json!({"object": "embedding", "index": at, "embedding": vector(text)}))
        .collect();
    json!({"object": "list", "model": model, "data": data,
        "usage": {"prompt_tokens": length.max(1), "total_tokens": length.max(1)}})
}

/// The words of a text, each at its own place, the whole of length 1.
pub(super) fn vector(text: &str) -> Vec<f32> {
    let mut vector = vec![0_f32; DIMENSIONS];
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    for word in words {
        let hash = hash(&word.to_lowercase());
        let sign = if hash & (1 << 40) == 0 { 1.0 } else { -1.0 };
        if let Some(place) = vector.get_mut((hash % DIMENSIONS as u64) as usize) {
            *place += sign;
        }
    }
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    if length == 0.0 {
        // Nothing is near to nothing, and still it has a direction.
        if let Some(first) = vector.first_mut() {
            *first = 1.0;
        }
        return vector;
    }
    vector.iter().map(|number| number / length).collect()
}

/// FNV-1a: the same on every machine.
fn hash(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
