//! Numbers, times and calls as people read them.

use serde_json::Value;
use tollgate_contract::{redact::redact_text, text::for_terminal};

use crate::part::Part;

/// A count with a thousand as `k`: `812`, `12.3k`, `1.4M`.
pub(super) fn short(count: u64) -> String {
    match count {
        0..=999 => count.to_string(),
        1_000..=999_949 => format!("{}.{}k", count / 1_000, count % 1_000 / 100),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

/// Millionths of a dollar.
pub(super) fn dollars(micros: u64) -> String {
    format!("${}.{:04}", micros / 1_000_000, micros % 1_000_000 / 100)
}

/// Milliseconds: `3 ms`, `8.1 s`, `2 min 5 s`.
pub(super) fn lasted(ms: u64) -> String {
    match ms {
        0..=999 => format!("{ms} ms"),
        1_000..=59_999 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

/// How long ago something was, in seconds since 1970.
pub(super) fn ago(ts: f64, now_ms: i64) -> String {
    if ts <= 0.0 {
        return "never".to_owned();
    }
    // A time of this millennium fits.
    let seconds = (now_ms / 1000).saturating_sub(ts as i64).max(0);
    match seconds {
        0..=59 => format!("{seconds} s ago"),
        60..=3_599 => format!("{} min ago", seconds / 60),
        3_600..=86_399 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// A word for one, another for more.
pub(super) fn some(count: u64, one: &str, more: &str) -> String {
    format!("{} {}", crate::table::count(count), if count == 1 { one } else { more })
}

/// What a turn took: `4 rounds · 5 calls · 12.3k tokens · $0.0042`.
pub(super) fn totals(totals: &Value) -> String {
    let number = |name: &str| totals.part(name).as_u64().unwrap_or(0);
    let tokens = number("input_tokens").saturating_add(number("output_tokens"));
    let mut words = vec![some(number("rounds"), "round", "rounds")];
    if number("tool_calls") > 0 {
        words.push(some(number("tool_calls"), "call", "calls"));
    }
    words.push(format!("{} tokens", short(tokens)));
    if number("usd_micros") > 0 {
        words.push(dollars(number("usd_micros")));
    }
    words.join(" · ")
}

/// The members of an input that say most of a call.
const TELLING: [&str; 5] = ["path", "url", "cmd", "query", "name"];

/// The longest brief of an input.
const LONGEST_BRIEF: usize = 72;

/// What a call is about, in a few words: the path, the address, the command, or the beginning of its input.
pub(super) fn brief(input: &Value) -> String {
    let telling = TELLING.iter().find_map(|name| input.get(name)?.as_str());
    let text = match (telling, input) {
        (Some(text), _) => text.to_owned(),
        (None, Value::Object(members)) if members.is_empty() => String::new(),
        (None, Value::Null) => String::new(),
        (None, other) => other.to_string(),
    };
    line(&text, LONGEST_BRIEF)
}

/// Text of somebody else on one line, cut, without secrets and without what a terminal would act on.
pub(super) fn line(text: &str, longest: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let whole = words.join(" ");
    let whole = redact_text(&whole);
    let mut cut: String = whole.chars().take(longest).collect();
    if cut.len() < whole.len() {
        cut.pop();
        cut.push('…');
    }
    for_terminal(&cut)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_short() {
        let written: Vec<String> = [0, 999, 1_000, 12_345, 999_949, 1_450_000].map(short).into();
        assert_eq!(written, ["0", "999", "1.0k", "12.3k", "999.9k", "1.4M"]);
        assert_eq!([3, 8_140, 125_000].map(lasted), ["3 ms", "8.1 s", "2 min 5 s"]);
        assert_eq!([4_200, 1_500_000].map(dollars), ["$0.0042", "$1.5000"]);
        assert_eq!(ago(0.0, 5_000), "never");
        assert_eq!(ago(100.5, 160_000), "1 min ago");
        assert_eq!(ago(200.0, 160_000), "0 s ago");
    }

    #[test]
    fn a_call_is_told_by_what_says_most_and_cannot_act_on_the_terminal() {
        assert_eq!(brief(&json!({"max_bytes": 5, "path": "a.md"})), "a.md");
        assert_eq!(brief(&json!({})), "");
        assert_eq!(brief(&json!({"text": "x\u{1b}[31m"})), "{\"text\":\"x\\u001b[31m\"}");
        assert_eq!(brief(&json!({"cmd": "ls\n\u{1b}]0;x\u{7}"})), "ls \\u{1b}]0;x\\u{7}");
        let long = brief(&json!({"path": "é".repeat(500)}));
        assert_eq!(long.chars().count(), LONGEST_BRIEF);
        assert!(long.ends_with('…'));
    }
}
