//! What stands where a secret was.

use std::ops::Range;

const OPENING: &str = "[redacted:";

/// Why something was taken out. Each kind has one fixed placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The name of the field, parameter or variable says that its value is secret.
    Field,
    /// A Tollgate key or token.
    TollgateKey,
    /// A key in the format of a known provider.
    ProviderKey,
    /// A JSON web token.
    Jwt,
    /// A PEM block.
    Pem,
    /// A bearer token.
    Bearer,
    /// The password in a URL.
    UrlPassword,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Field,
        Self::TollgateKey,
        Self::ProviderKey,
        Self::Jwt,
        Self::Pem,
        Self::Bearer,
        Self::UrlPassword,
    ];

    /// The text that replaces what was taken out.
    pub const fn placeholder(self) -> &'static str {
        match self {
            Self::Field => "[redacted:field]",
            Self::TollgateKey => "[redacted:tollgate-key]",
            Self::ProviderKey => "[redacted:provider-key]",
            Self::Jwt => "[redacted:jwt]",
            Self::Pem => "[redacted:pem]",
            Self::Bearer => "[redacted:bearer]",
            Self::UrlPassword => "[redacted:url-password]",
        }
    }
}

/// The length of the placeholder that `text` starts with, if it starts with one.
pub(super) fn leading(text: &str) -> Option<usize> {
    if !text.starts_with(OPENING) {
        return None;
    }
    Kind::ALL.iter().map(|kind| kind.placeholder()).find(|p| text.starts_with(p)).map(str::len)
}

/// Does `text` hold a placeholder?
pub(super) fn is_in(text: &str) -> bool {
    text.match_indices(OPENING).any(|(at, _)| text.get(at..).and_then(leading).is_some())
}

/// The stretches of `text` between placeholders.
pub(super) fn gaps(text: &str) -> Vec<Range<usize>> {
    let mut gaps = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(OPENING) {
        if let Some(length) = text.get(at..).and_then(leading) {
            gaps.push(start..at);
            start = at + length;
        }
    }
    gaps.push(start..text.len());
    gaps
}
