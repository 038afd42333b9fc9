//! What a provider's answer to a poll says.

use jiff::Timestamp;
use serde_json::Value;
use tollgate_contract::Quoted;
use tollgate_governor::ProviderReport;

use crate::source::{JsonPoll, PollSource, ResetIs};

/// Most limits that one answer reports, and the longest name of one.
const MOST: usize = 256;
const LONGEST_NAME: usize = 64;

/// Reads the body of an answer that came at `now_ms`.
pub(crate) fn reports(
    source: &PollSource,
    body: &[u8],
    now_ms: i64,
) -> Result<Vec<ProviderReport>, String> {
    // Where it breaks is said, and not what stands there: it is not ours to repeat.
    let answer: Value = serde_json::from_slice(body).map_err(|error| {
        format!("the answer is not JSON (line {}, column {})", error.line(), error.column())
    })?;
    match source {
        PollSource::Github(_) => github(&answer),
        PollSource::Json(poll) => json(poll, &answer, now_ms).map(|report| vec![report]),
    }
}

/// GitHub's answer: a limit for each resource.
fn github(answer: &Value) -> Result<Vec<ProviderReport>, String> {
    let resources = answer.get("resources").and_then(Value::as_object).ok_or(
        "the answer has no `resources`; `url` should lead to GitHub's /rate_limit, which is also what a server of your own has under /api/v3",
    )?;
    let readable = |name: &str| {
        !name.is_empty()
            && name.len() <= LONGEST_NAME
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let named = resources.iter().filter(|(name, _)| readable(name));
    let reports = named.map(|(name, resource)| ProviderReport {
        name: Some(name.clone()),
        limit: resource.get("limit").and_then(count),
        remaining: resource.get("remaining").and_then(count),
        reset_at_ms: resource.get("reset").and_then(|reset| moment(reset, ResetIs::Unix, 0)),
        used: resource.get("used").and_then(count),
        window_ms: None,
    });
    let says_something = |report: &ProviderReport| report.remaining.or(report.used).is_some();
    let reports: Vec<_> = reports.filter(says_something).take(MOST).collect();
    if reports.is_empty() {
        return Err("the answer says of no resource how much is left".to_owned());
    }
    Ok(reports)
}

/// An answer in a form of its own.
fn json(poll: &JsonPoll, answer: &Value, now_ms: i64) -> Result<ProviderReport, String> {
    let at = |pointer: &Option<String>| answer.pointer(pointer.as_deref()?);
    let report = ProviderReport {
        name: poll.name.clone(),
        limit: at(&poll.limit).and_then(count),
        remaining: at(&poll.remaining).and_then(count),
        reset_at_ms: at(&poll.reset).and_then(|reset| moment(reset, poll.reset_is, now_ms)),
        used: at(&poll.used).and_then(count),
        window_ms: None,
    };
    if report.remaining.or(report.used).is_none() {
        let pointers: Vec<_> = [&poll.remaining, &poll.used]
            .into_iter()
            .flatten()
            .map(|pointer| Quoted::new(pointer).to_string())
            .collect();
        return Err(format!("the answer has no count at {}", pointers.join(" or ")));
    }
    Ok(report)
}

/// A count: a number, or one in quotes. Parts are dropped.
fn count(value: &Value) -> Option<u64> {
    if let Some(count) = value.as_u64() {
        return Some(count);
    }
    // Beyond 2^53 such a number is not exact, and nothing that is counted comes near.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within bounds")]
    number(value).filter(|number| (0.0..=9e15).contains(number)).map(|number| number as u64)
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// The end of a window, in milliseconds since 1970.
fn moment(value: &Value, written: ResetIs, now_ms: i64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "within bounds")]
    let in_ms = |scale: f64| {
        let ms = number(value)? * scale;
        (0.0..=9e15).contains(&ms).then_some(ms.ceil() as i64)
    };
    match written {
        ResetIs::Unix => in_ms(1000.0),
        ResetIs::UnixMs => in_ms(1.0),
        ResetIs::Seconds => in_ms(1000.0)?.checked_add(now_ms),
        ResetIs::Rfc3339 => {
            let date: Timestamp = value.as_str()?.trim().parse().ok()?;
            Some(date.as_millisecond())
        }
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
