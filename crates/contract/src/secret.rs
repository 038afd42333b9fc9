//! Secrets as a type: no habit is needed to keep them out of logs, traces and errors.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

/// A text that must not be shown: an API key, a password, a signing secret.
///
/// It has no `Display`, no `Serialize`, no `PartialEq` and no `Clone`, its `Debug` shows nothing of
/// it, and its memory is overwritten when it is dropped. What remains is [`Secret::expose`], which is
/// easy to search for, and [`Secret::matches`], which takes the same time wherever two texts differ.
pub struct Secret(SecretString);

impl Secret {
    /// Takes a text over as a secret.
    pub fn new(text: String) -> Self {
        // `into_boxed_str` may move the text to a smaller allocation and leave the old one behind,
        // so the text is copied into one of the right size and the original is overwritten.
        let mut text = secrecy::zeroize::Zeroizing::new(text);
        let secret = SecretString::from(text.as_str());
        secrecy::zeroize::Zeroize::zeroize(&mut *text);
        Self(secret)
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// Is this the same text? The time taken depends on the lengths alone.
    pub fn matches(&self, other: &Self) -> bool {
        self.matches_bytes(other.expose().as_bytes())
    }

    /// Are these the bytes of this text? The time taken depends on the lengths alone.
    pub fn matches_bytes(&self, other: &[u8]) -> bool {
        self.expose().as_bytes().ct_eq(other).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
#[path = "secret_tests.rs"]
mod tests;
