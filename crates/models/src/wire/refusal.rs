//! What the no of a server means.

use std::time::{Duration, SystemTime};

use serde_json::Value;
use tollgate_governor::from_headers;

use super::Hide;
use crate::error::ModelError;

/// The longest wait that is believed.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The error for an answer that is no success.
pub(crate) fn refused(
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
    hide: &Hide,
) -> ModelError {
    let words = hide.shown(&words(body));
    let said = |hint: &str| hide.clean(&format!("{words}{hint}"));
    match status {
        300..=399 => ModelError::Refused {
            status,
            said: said("; it leads elsewhere, which is not followed: set `url` to where it leads"),
        },
        401 | 403 => {
            ModelError::Refused { status, said: said("; check `api_key_env` and what it holds") }
        }
        404 => ModelError::Refused { status, said: said("; check `url` and `model`") },
        429 if is_about_money(body) => ModelError::Refused { status, said: said("") },
        429 => ModelError::RateLimited { said: said(""), retry_after: retry_after(headers) },
        408 | 425 | 500.. => {
            ModelError::Overloaded { status, said: said(""), retry_after: retry_after(headers) }
        }
        _ => ModelError::Refused { status, said: said("") },
    }
}

/// The error that a server tells of within its answer: `{"error": …}` or the words that stand for it.
pub(crate) fn refused_by_word(error: &Value, hide: &Hide) -> ModelError {
    let word = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let code = error.get("code").or_else(|| error.get("status"));
    let code = code.and_then(|code| match code {
        Value::String(text) => text.parse().ok(),
        code => code.as_u64(),
    });
    let kinds = format!("{} {}", word("type"), word("code"));
    let said = message(error).map(|said| hide.shown(&said));
    let said = hide.clean(&said.unwrap_or_else(|| "it gave no reason".to_owned()));
    let status = match code.and_then(|code| u16::try_from(code).ok()) {
        Some(status @ 400..=599) => status,
        _ if kinds.contains("rate_limit") => 429,
        _ if kinds.contains("overloaded") => 529,
        _ if [
            "invalid_request",
            "authentication",
            "permission",
            "not_found",
            "request_too_large",
        ]
        .iter()
        .any(|kind| kinds.contains(kind)) =>
        {
            400
        }
        _ => 500,
    };
    match status {
        429 if kinds.contains("insufficient_quota") => ModelError::Refused { status, said },
        429 => ModelError::RateLimited { said, retry_after: None },
        408 | 425 | 500.. => ModelError::Overloaded { status, said, retry_after: None },
        _ => ModelError::Refused { status, said },
    }
}

/// Some say that a limit is reached when there is no money left. To wait does not help.
fn is_about_money(body: &[u8]) -> bool {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return false };
    let error = body.get("error").unwrap_or(&body);
    ["code", "type"]
        .iter()
        .any(|name| error.get(name).and_then(Value::as_str) == Some("insufficient_quota"))
}

/// What a server says in the body of a refusal.
fn words(body: &[u8]) -> String {
    if let Ok(json) = serde_json::from_slice::<Value>(body)
        && let Some(message) = message(&json)
    {
        return message;
    }
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.is_empty() {
        return "it gave no reason".to_owned();
    }
    let head: String = text.chars().take(200).collect();
    if head.starts_with('<') || head.to_ascii_lowercase().contains("<html") {
        return "it answered with a web page".to_owned();
    }
    text.to_owned()
}

/// Where servers put their words.
fn message(json: &Value) -> Option<String> {
    match json {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Object(members) => {
            ["error", "message", "detail"].iter().find_map(|name| message(members.get(*name)?))
        }
        _ => None,
    }
}

fn retry_after(headers: &[(String, String)]) -> Option<Duration> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let now = i64::try_from(now.as_millis()).ok()?;
    let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let at = from_headers(pairs, now).retry_at_ms?;
    let wait = Duration::from_millis(u64::try_from(at.saturating_sub(now)).ok()?);
    Some(wait.min(LONGEST_WAIT))
}
