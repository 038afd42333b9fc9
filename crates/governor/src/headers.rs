//! What a provider says about its limits in the headers of an answer.
//!
//! Providers agree on little: which headers there are, how a limit is named, and whether a reset is a
//! moment or a span. Each header is read by itself, what cannot be read is skipped, and what several of
//! them say about the same limit is put together with the more careful word winning. The text comes from
//! outside, so how much of it is looked at is bounded.

use std::collections::BTreeMap;

mod value;

/// What a provider said about one of its limits. What it did not say is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderReport {
    /// What the provider calls the limit, such as `core`, `requests` or `input-tokens`.
    pub name: Option<String>,
    /// How much there is in a window.
    pub limit: Option<u64>,
    /// How much of it is left.
    pub remaining: Option<u64>,
    /// When the window ends, in milliseconds since 1970.
    pub reset_at_ms: Option<i64>,
    /// How much of it is used.
    pub used: Option<u64>,
    /// How long a window is.
    pub window_ms: Option<i64>,
}

/// What the headers of one answer say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Learned {
    /// The limits, those of one family of headers together, by name.
    pub reports: Vec<ProviderReport>,
    /// The moment before which the provider does not want to be asked again (`Retry-After`).
    pub retry_at_ms: Option<i64>,
}

/// Most headers about limits that are looked at, and most limits that are kept.
const MOST: usize = 64;

/// The longest header name, limit name and value that are looked at.
const LONGEST_NAME: usize = 64;
const LONGEST_VALUE: usize = 2_048;

/// Headers of one family speak about the same limits; those of different families are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    Ietf,
    Common,
    Anthropic,
}

const FAMILIES: [(&str, Family); 4] = [
    ("ratelimit-", Family::Ietf),
    ("x-ratelimit-", Family::Common),
    ("x-rate-limit-", Family::Common),
    ("anthropic-ratelimit-", Family::Anthropic),
];

/// What one header says about a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Limit,
    Remaining,
    Used,
    Reset,
    ResetAfter,
}

/// In this order: the longer word before the one that it begins with.
const FIELDS: [(&str, Field); 5] = [
    ("limit", Field::Limit),
    ("remaining", Field::Remaining),
    ("used", Field::Used),
    ("reset-after", Field::ResetAfter),
    ("reset", Field::Reset),
];

/// Reads what the headers of an answer say about limits. `now_ms` is when the answer came.
pub fn from_headers<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    now_ms: i64,
) -> Learned {
    let mut found = Found { now_ms, ..Found::default() };
    let mut relevant = 0;
    for (name, text) in headers {
        if relevant == MOST {
            break;
        }
        if name.len() <= LONGEST_NAME && text.len() <= LONGEST_VALUE {
            relevant += usize::from(found.header(&name.to_ascii_lowercase(), text.trim()));
        }
    }
    found.learned()
}

/// What was found so far.
#[derive(Default)]
struct Found {
    now_ms: i64,
    reports: BTreeMap<(Family, Option<String>), ProviderReport>,
    /// Quotas and windows without a name; the one that fits the unnamed limit says its window.
    policies: Vec<(u64, Option<i64>)>,
    /// What GitHub calls the limit that its headers are about.
    resource: Option<String>,
    retry_at_ms: Option<i64>,
}

impl Found {
    /// Takes one header in, and says whether it is about limits at all.
    fn header(&mut self, name: &str, text: &str) -> bool {
        match name {
            "retry-after" => later(&mut self.retry_at_ms, value::latest(text, self.now_ms)),
            "retry-after-ms" => {
                later(&mut self.retry_at_ms, value::after(text, 1, self.now_ms));
            }
            "ratelimit" => value::parts(text, ',').for_each(|item| self.item(item)),
            "ratelimit-policy" => value::parts(text, ',').for_each(|item| self.policy(item)),
            "x-ratelimit-resource" => self.resource = readable(text),
            _ => return self.plain(name, text),
        }
        true
    }

    /// A header that says one thing about one limit: `x-ratelimit-remaining-tokens`.
    fn plain(&mut self, name: &str, text: &str) -> bool {
        let of = |(prefix, family): (&str, _)| Some((name.strip_prefix(prefix)?, family));
        let Some((rest, family)) = FAMILIES.into_iter().find_map(of) else { return false };
        let Some((field, limit_name)) = FIELDS.into_iter().find_map(|one| named(rest, one)) else {
            return false;
        };
        let now = self.now_ms;
        if (family, field) == (Family::Ietf, Field::Limit) && limit_name.is_none() {
            // Policies may follow the limit: `100, 100;w=60`.
            value::parts(text, ',').for_each(|item| self.policy(item));
        }
        let Some(report) = self.report(family, limit_name) else { return true };
        let first = || value::parts(text, ',').next().and_then(value::bare);
        match field {
            Field::Limit => smaller(&mut report.limit, first().and_then(value::floor)),
            Field::Remaining => {
                // The same header twice arrives as one with a comma.
                for item in value::parts(text, ',') {
                    smaller(&mut report.remaining, value::bare(item).and_then(value::floor));
                }
            }
            Field::Used => larger(&mut report.used, first().and_then(value::ceiling)),
            Field::Reset => later(&mut report.reset_at_ms, value::latest(text, now)),
            Field::ResetAfter => later(&mut report.reset_at_ms, value::after(text, 1000, now)),
        }
        true
    }

    /// One item of `RateLimit`: `"default";r=50;t=30`, or, as it was earlier, `remaining=50`.
    fn item(&mut self, item: &str) {
        let now = self.now_ms;
        let mut pieces = value::parts(item, ';');
        let Some(head) = pieces.next() else { return };
        if let Some((key, text)) = value::parameter(head) {
            let Some(report) = self.report(Family::Ietf, None) else { return };
            match key {
                "limit" => smaller(&mut report.limit, value::floor(text)),
                "remaining" => smaller(&mut report.remaining, value::floor(text)),
                "reset" => later(&mut report.reset_at_ms, value::latest(text, now)),
                _ => {}
            }
            return;
        }
        let Some(name) = value::unquoted(head).as_deref().and_then(readable) else { return };
        let Some(report) = self.report(Family::Ietf, Some(name)) else { return };
        for (key, text) in pieces.filter_map(value::parameter) {
            match key {
                "r" => smaller(&mut report.remaining, value::floor(text)),
                "t" => later(&mut report.reset_at_ms, value::after(text, 1000, now)),
                _ => {}
            }
        }
    }

    /// One item of `RateLimit-Policy`: `"default";q=100;w=60`, or, as it was earlier, `100;w=60`.
    fn policy(&mut self, item: &str) {
        let mut pieces = value::parts(item, ';');
        let Some(head) = pieces.next() else { return };
        let (mut quota, mut window) = (None, None);
        for (key, text) in pieces.filter_map(value::parameter) {
            match key {
                "q" => quota = value::floor(text),
                "w" => window = value::scaled(text, 1000),
                _ => {}
            }
        }
        if let Some(quota) = value::floor(head) {
            if self.policies.len() < MOST {
                self.policies.push((quota, window));
            }
        } else if let Some(name) = value::unquoted(head).as_deref().and_then(readable)
            && let Some(report) = self.report(Family::Ietf, Some(name))
        {
            smaller(&mut report.limit, quota);
            larger(&mut report.window_ms, window);
        }
    }

    /// The report on a limit, a new one if there is still room.
    fn report(&mut self, family: Family, name: Option<String>) -> Option<&mut ProviderReport> {
        let key = (family, name);
        if self.reports.len() >= MOST && !self.reports.contains_key(&key) {
            return None;
        }
        let empty = ProviderReport {
            name: key.1.clone(),
            window_ms: key
                .1
                .as_deref()
                .filter(|_| family == Family::Common)
                .and_then(window_in_name),
            ..ProviderReport::default()
        };
        Some(self.reports.entry(key).or_insert(empty))
    }

    /// All of it, put together.
    fn learned(mut self) -> Learned {
        if let Some(&first) = self.policies.first() {
            let policies = std::mem::take(&mut self.policies);
            if let Some(report) = self.report(Family::Ietf, None) {
                let limit = *report.limit.get_or_insert(first.0);
                let windows = policies.iter().filter(|policy| policy.0 == limit);
                report.window_ms = windows.filter_map(|policy| policy.1).max();
            }
        }
        if let Some(report) = self.reports.get_mut(&(Family::Common, None)) {
            report.name = self.resource;
        }
        let says_something = |report: &ProviderReport| {
            let counts = [report.limit, report.remaining, report.used];
            counts.iter().any(Option::is_some) || report.reset_at_ms.is_some()
        };
        let reports = self.reports.into_values().filter(says_something).collect();
        Learned { reports, retry_at_ms: self.retry_at_ms }
    }
}

/// Splits what follows a family's prefix into what is said and the name of the limit, which may stand on
/// either side: `remaining-tokens`, `tokens-remaining`, `remaining`.
fn named(rest: &str, (word, field): (&str, Field)) -> Option<(Field, Option<String>)> {
    if rest == word {
        return Some((field, None));
    }
    let after = rest.strip_prefix(word).and_then(|rest| rest.strip_prefix('-'));
    let before = || rest.strip_suffix(word).and_then(|rest| rest.strip_suffix('-'));
    let name = after.or_else(before)?;
    Some((field, Some(readable(name)?)))
}

/// A limit's name, if it is one that can be shown and kept.
fn readable(name: &str) -> Option<String> {
    let plain = name.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let fits = !name.is_empty() && name.len() <= LONGEST_NAME;
    (plain && fits).then(|| name.to_owned())
}

/// Some name a limit after its window: `x-ratelimit-limit-minute`.
fn window_in_name(name: &str) -> Option<i64> {
    match name {
        "second" => Some(1_000),
        "minute" => Some(60_000),
        "hour" => Some(3_600_000),
        "day" => Some(86_400_000),
        _ => None,
    }
}

fn smaller(kept: &mut Option<u64>, seen: Option<u64>) {
    *kept = kept.iter().copied().chain(seen).min();
}

fn larger<T: Ord + Copy>(kept: &mut Option<T>, seen: Option<T>) {
    *kept = (*kept).max(seen);
}

/// A reset that is believed too early would let through what the provider refuses.
fn later(kept: &mut Option<i64>, seen: Option<i64>) {
    larger(kept, seen);
}

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
