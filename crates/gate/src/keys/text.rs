//! The text of a key: a prefix that says what it is, and 256 random bits in hex.

use sha2::{Digest, Sha256};
use tollgate_contract::{Error, Secret, text::hex};

use crate::clock;

/// What a key starts with.
const KEY: &str = "tg_key_";
/// What a short-lived token starts with.
const TOKEN: &str = "tg_tok_";
/// How many hex digits follow.
const DIGITS: usize = 64;

/// What kind of text is presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyText {
    /// A long-lived key.
    Key,
    /// A short-lived token.
    Token,
}

impl KeyText {
    /// The kind of a text that has the right form.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let (kind, digits) = if let Some(rest) = text.strip_prefix(KEY) {
            (Self::Key, rest)
        } else {
            (Self::Token, text.strip_prefix(TOKEN)?)
        };
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        (digits.len() == DIGITS && digits.bytes().all(is_hex)).then_some(kind)
    }

    /// A new text of this kind.
    pub(crate) fn make(self) -> Result<Secret, Error> {
        let prefix = match self {
            Self::Key => KEY,
            Self::Token => TOKEN,
        };
        let bits: [u8; 32] = clock::random()?;
        Ok(Secret::new(format!("{prefix}{}", hex(&bits))))
    }
}

/// What is kept of a key. It has 256 random bits: there is nothing to guess, and no need for a slow hash.
pub(crate) fn digest(key: &Secret) -> [u8; 32] {
    Sha256::digest(key.expose().as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_what_it_is_and_is_never_made_twice() {
        let (one, two) = (KeyText::Key.make().unwrap(), KeyText::Key.make().unwrap());
        assert_eq!(KeyText::of(one.expose()), Some(KeyText::Key));
        assert_eq!(one.expose().len(), "tg_key_".len() + 64);
        assert!(!one.matches(&two));
        let token = KeyText::Token.make().unwrap();
        assert_eq!(KeyText::of(token.expose()), Some(KeyText::Token));
    }

    #[test]
    fn what_is_cut_short_changed_or_of_another_kind_is_no_key() {
        let key = KeyText::Key.make().unwrap();
        let text = key.expose();
        let cut = text.get(..text.len() - 1).unwrap();
        let upper = text.to_uppercase();
        for wrong in
            ["", "tg_key_", cut, &upper, &format!("{text}0"), &format!(" {text}"), "sk-abc"]
        {
            assert_eq!(KeyText::of(wrong), None, "{wrong}");
        }
    }
}
