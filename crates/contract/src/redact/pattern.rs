//! Secrets that are known by their shape.
//!
//! No expression here has a look-around or a boundary: whether a stretch of text matches depends on
//! that stretch alone. That is what makes redaction idempotent, and the engine makes it linear.

use std::{borrow::Cow, sync::LazyLock};

use regex::Regex;

use super::placeholder::{self, Kind};

/// Tokens of several parts: JSON web tokens (a header and a payload that both start with `{"`), and
/// SendGrid keys. They stand apart from the formats below: whether one matches may be known only far
/// behind its start, and a shorter match in between would make each search run that far again.
const TOKEN_FORMATS: &[&str] = &[
    r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?",
    r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
];

static TOKENS: LazyLock<Option<Regex>> = LazyLock::new(|| compile(&TOKEN_FORMATS.join("|")));

/// Keys of Tollgate itself and of providers, by their published prefixes. Each ends in an open
/// repetition, so that a match takes the whole run of key characters.
const KEY_FORMATS: &[&str] = &[
    // Tollgate keys and tokens, also when cut short.
    r"tg_(?:key|tok)_[A-Za-z0-9_-]{6,}",
    // Anthropic, OpenAI, OpenRouter, and older OpenAI keys.
    r"sk-(?:ant|proj|svcacct|admin|or)-[A-Za-z0-9_-]{16,}",
    r"sk-[A-Za-z0-9]{32,}",
    // GitHub, GitLab.
    r"gh[opsru]_[A-Za-z0-9]{30,}",
    r"github_pat_[A-Za-z0-9_]{22,}",
    r"gl(?:pat|ptt|dt|rt|cbt)-[A-Za-z0-9_-]{20,}",
    // AWS key ids.
    r"(?:AKIA|ASIA)[0-9A-Z]{16,}",
    // Google API keys, OAuth tokens and client secrets.
    r"AIza[0-9A-Za-z_-]{35,}",
    r"ya29\.[0-9A-Za-z_-]{20,}",
    r"GOCSPX-[0-9A-Za-z_-]{20,}",
    // Slack.
    r"xox[abeoprs]-[0-9A-Za-z-]{10,}",
    r"xapp-[0-9A-Za-z-]{20,}",
    // Stripe and webhook secrets.
    r"[rs]k_(?:live|test)_[0-9A-Za-z]{10,}",
    r"whsec_[0-9A-Za-z+/=]{16,}",
    // Hugging Face, npm, PyPI, Groq, xAI, Perplexity, Replicate.
    r"hf_[A-Za-z0-9]{30,}",
    r"npm_[A-Za-z0-9]{36,}",
    r"pypi-[A-Za-z0-9_-]{40,}",
    r"gsk_[A-Za-z0-9]{40,}",
    r"xai-[A-Za-z0-9]{40,}",
    r"pplx-[A-Za-z0-9]{40,}",
    r"r8_[A-Za-z0-9]{30,}",
    // DigitalOcean, Hashicorp Vault, Databricks, Tavily.
    r"do[opr]_v1_[a-f0-9]{40,}",
    r"hv[sb]\.[A-Za-z0-9_-]{24,}",
    r"dapi[a-f0-9]{32,}",
    r"tvly-[A-Za-z0-9-]{20,}",
    // Shopify, Linear, Notion, Figma, Docker Hub, NVIDIA, Sentry, age, Twilio, Mailgun.
    r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32,}",
    r"lin_api_[A-Za-z0-9]{32,}",
    r"ntn_[A-Za-z0-9]{40,}",
    r"figd_[A-Za-z0-9_-]{20,}",
    r"dckr_pat_[A-Za-z0-9_-]{20,}",
    r"nvapi-[A-Za-z0-9_-]{40,}",
    r"sntry[su]_[A-Za-z0-9+/=_-]{20,}",
    r"AGE-SECRET-KEY-1[0-9A-Z]{50,}",
    r"SK[0-9a-f]{32,}",
    r"key-[0-9a-f]{32,}",
    // Telegram bots, as they stand in an address; webhooks of Slack and Discord, whose address is
    // the secret. Every format starts with letters: a search for a digit would stop everywhere.
    r"bot[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}",
    r"hooks\.slack\.com/services/[A-Za-z0-9/_-]{20,}",
    r"discord(?:app)?\.com/api/webhooks/[0-9]{5,25}/[A-Za-z0-9_-]{20,}",
];

static KEYS: LazyLock<Option<Regex>> = LazyLock::new(|| compile(&KEY_FORMATS.join("|")));

/// How a PEM block begins and ends.
const PEM_BEGIN: &str = "-----BEGIN [A-Z0-9 ]{1,40}-----";
const PEM_END: &str = "-----END [A-Z0-9 ]{1,40}-----";

/// A PEM block, to its end marker or, when it has none, to the end of the text.
static PEM: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile(&format!(r"(?s){PEM_BEGIN}.*?(?:{PEM_END}|\z)")));

/// Only the captured part is taken out: `Bearer TOKEN`, `://user:PASSWORD@`, `://TOKEN@`,
/// `-u user:PASSWORD`, `login user password PASSWORD`.
const CREDENTIAL: &str = concat!(
    r"[Bb][Ee][Aa][Rr][Ee][Rr][ \t]+([A-Za-z0-9._~+/=-]{8,})",
    r"|://[^ \t\r\n/?#@:]*:([^ \t\r\n/?#]+)@",
    r"|://([A-Za-z0-9_-]{16,})@",
    r#"|-(?:u|-user|-proxy-user)[ \t=]+["']?[^ \t\r\n:"']{1,64}:([^ \t\r\n"']+)"#,
    r"|login[ \t]+[^ \t\r\n]{1,64}[ \t\r\n]+password[ \t]+([^ \t\r\n]+)",
);

static CREDENTIALS: LazyLock<Option<Regex>> = LazyLock::new(|| compile(CREDENTIAL));

/// The expressions are constants and a test compiles each; a broken one would take out nothing, so
/// the stages below replace the whole text instead.
fn compile(expression: &str) -> Option<Regex> {
    Regex::new(expression).ok()
}

/// Takes out PEM blocks.
pub(super) fn pem_blocks(text: &str) -> Cow<'_, str> {
    replace(text, PEM.as_ref(), |_| Kind::Pem)
}

/// Takes out tokens of several parts.
pub(super) fn token_formats(text: &str) -> Cow<'_, str> {
    replace(text, TOKENS.as_ref(), |found| {
        if found.starts_with("eyJ") { Kind::Jwt } else { Kind::ProviderKey }
    })
}

/// Takes out keys in known formats.
pub(super) fn key_formats(text: &str) -> Cow<'_, str> {
    replace(text, KEYS.as_ref(), |found| {
        if found.starts_with("tg_") { Kind::TollgateKey } else { Kind::ProviderKey }
    })
}

/// Takes out bearer tokens and the passwords of URLs, and leaves what stands before them.
pub(super) fn credentials(text: &str) -> Cow<'_, str> {
    replace(text, CREDENTIALS.as_ref(), |found| match found.bytes().next() {
        Some(b'b' | b'B') => Kind::Bearer,
        Some(b':') => Kind::UrlPassword,
        _ => Kind::Field,
    })
}

/// Replaces each match outside placeholders: its first group where it has one, else all of it.
fn replace<'t>(text: &'t str, regex: Option<&Regex>, kind: fn(&str) -> Kind) -> Cow<'t, str> {
    let Some(regex) = regex else {
        return Cow::Borrowed(Kind::Field.placeholder());
    };
    // Most texts hold nothing, and that is cheap to know.
    if !regex.is_match(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut copied = 0;
    for gap in placeholder::gaps(text) {
        let Some(part) = text.get(gap.clone()) else {
            continue;
        };
        for found in regex.captures_iter(part) {
            let Some(whole) = found.get(0) else { continue };
            let secret = found.iter().skip(1).flatten().next().unwrap_or(whole);
            let (from, to) = (gap.start + secret.start(), gap.start + secret.end());
            out.push_str(text.get(copied..from).unwrap_or_default());
            out.push_str(kind(whole.as_str()).placeholder());
            copied = to;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expression_compiles() {
        for format in KEY_FORMATS.iter().chain(TOKEN_FORMATS) {
            Regex::new(format).unwrap();
        }
        assert!(KEYS.is_some() && TOKENS.is_some() && PEM.is_some() && CREDENTIALS.is_some());
    }

    #[test]
    fn no_expression_looks_at_what_surrounds_it() {
        for expression in KEY_FORMATS.iter().chain(TOKEN_FORMATS).copied().chain([CREDENTIAL]) {
            for assertion in [r"\b", r"\B", r"\A", r"\z"] {
                assert!(!expression.contains(assertion), "{expression}");
            }
            assert!(!expression.starts_with('^') && !expression.ends_with('$'), "{expression}");
        }
    }

    #[test]
    fn the_published_expressions_are_these() {
        let spec: serde_json::Value =
            serde_json::from_str(include_str!("../../../../spec/redaction.json")).unwrap();
        assert_eq!(spec["version"], super::super::REDACTION_VERSION);
        assert_eq!(spec["tokenFormats"], serde_json::json!(TOKEN_FORMATS));
        assert_eq!(spec["keyFormats"], serde_json::json!(KEY_FORMATS));
        assert_eq!(spec["pem"], serde_json::json!({"begin": PEM_BEGIN, "end": PEM_END}));
        assert_eq!(spec["credentials"], CREDENTIAL);
        let placeholders: Vec<&str> = Kind::ALL.iter().map(|kind| kind.placeholder()).collect();
        assert_eq!(spec["placeholders"], serde_json::json!(placeholders));
    }
}
