//! Canonical JSON (RFC 8785) and the hash of an input.
//!
//! Two inputs that mean the same have the same canonical form: keys are sorted, numbers and strings
//! are written in one way. The `inputHash` is taken over the *redacted* canonical form, so that it
//! neither leaks a guessable secret nor changes when a redacted output comes back as an input.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    json::{self, JsonError},
    redact,
    text::hex,
};

/// The canonical form of `value`. Refuses what it would have to merge: see [`json::check`].
pub fn canonical(value: &Value) -> Result<String, JsonError> {
    json::check(value)?;
    Ok(written(value))
}

/// The form that RFC 8785 gives to any value, without our own limits on integers.
fn written(value: &Value) -> String {
    // Writing a `Value` into memory cannot fail: its keys are strings and its numbers are finite.
    serde_json_canonicalizer::to_string(value).unwrap_or_default()
}

/// SHA-256 over the redacted canonical form of `input`.
pub fn input_hash(input: &Value) -> Result<InputHash, JsonError> {
    // Before redaction: an integer under a secret name is refused like any other.
    json::check(input)?;
    let canonical = written(&redact::redacted(input));
    Ok(InputHash(Sha256::digest(canonical.as_bytes()).into()))
}

/// The hash that names an input in traces, replay and events. Written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InputHash([u8; 32]);

impl InputHash {
    /// Reads 64 lower-case hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() != 64 || !text.bytes().all(is_hex) {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for InputHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for InputHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InputHash({self})")
    }
}

impl Serialize for InputHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for InputHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| de::Error::custom("not a hash of 64 lower-case hex digits"))
    }
}

#[cfg(test)]
#[path = "canonical_tests.rs"]
mod tests;
