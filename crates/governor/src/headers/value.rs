//! The values of such headers: counts, spans, moments, and lists with parameters.

use jiff::{Timestamp, civil::DateTime, fmt::rfc2822, fmt::strtime::BrokenDownTime, tz::TimeZone};

/// Numbers of seconds below this are spans, from it on moments: it is thirty years, and it was 2001.
const FIRST_MOMENT: i64 = 1_000_000_000;

/// The longest text that is read as a moment.
const LONGEST_MOMENT: usize = 64;

/// A count, rounded down: less room is the careful reading. Some send `12.0`.
pub(super) fn floor(text: &str) -> Option<u64> {
    decimal(text).map(|(whole, _)| whole)
}

/// A count, rounded up.
pub(super) fn ceiling(text: &str) -> Option<u64> {
    let (whole, fraction) = decimal(text)?;
    let more = fraction.bytes().any(|digit| digit != b'0');
    whole.checked_add(u64::from(more))
}

/// `number` times `unit`, rounded up.
pub(super) fn scaled(number: &str, unit: i64) -> Option<i64> {
    let (whole, fraction) = decimal(number)?;
    let whole = i64::try_from(whole).ok()?.checked_mul(unit)?;
    let (mut part, mut tenth) = (0_i128, 1_i128);
    // Beyond nine digits nothing is a whole millisecond any more.
    for digit in fraction.bytes().take(9) {
        tenth *= 10;
        part = part * 10 + i128::from(digit - b'0');
    }
    let part = (part * i128::from(unit) + tenth - 1) / tenth;
    whole.checked_add(i64::try_from(part).ok()?)
}

/// The digits before and after the point.
fn decimal(text: &str) -> Option<(u64, &str)> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    Some((whole.parse().ok()?, fraction))
}

/// The moment that is a number of `unit` milliseconds, or a span such as `6m0s`, after `now`.
pub(super) fn after(text: &str, unit: i64, now: i64) -> Option<i64> {
    let span = scaled(text, unit).or_else(|| span(text))?;
    (span < FIRST_MOMENT * 1000).then(|| now.checked_add(span))?
}

/// The latest moment in a text that holds one, or, where a header was sent twice, several.
pub(super) fn latest(text: &str, now: i64) -> Option<i64> {
    moment(text, now).or_else(|| parts(text, ',').filter_map(|one| moment(one, now)).max())
}

/// A moment: seconds from now, seconds or milliseconds since 1970, a span, or a date.
fn moment(text: &str, now: i64) -> Option<i64> {
    let text = text.trim();
    if text.len() > LONGEST_MOMENT {
        return None;
    }
    if let Some((whole, _)) = decimal(text) {
        let whole = i64::try_from(whole).ok()?;
        return match whole {
            ..FIRST_MOMENT => after(text, 1000, now),
            FIRST_MOMENT..100_000_000_000 => scaled(text, 1000),
            100_000_000_000..100_000_000_000_000 => Some(whole),
            _ => None,
        };
    }
    after(text, 1000, now).or_else(|| date(text).map(Timestamp::as_millisecond))
}

/// A date as RFC 3339 or, in the three forms that there are, HTTP has it.
fn date(text: &str) -> Option<Timestamp> {
    let at = |date: DateTime| date.to_zoned(TimeZone::UTC).ok().map(|date| date.timestamp());
    let as_written = |format| BrokenDownTime::parse(format, text).ok()?.to_datetime().ok();
    text.parse()
        .ok()
        .or_else(|| rfc2822::DateTimeParser::new().parse_timestamp(text).ok())
        .or_else(|| as_written("%A, %d-%b-%y %H:%M:%S GMT").and_then(at))
        .or_else(|| as_written("%a %b %e %H:%M:%S %Y").and_then(at))
}

/// A span such as `1s`, `6m0s`, `20ms` or `1h2m3.5s`, in milliseconds.
fn span(text: &str) -> Option<i64> {
    let mut total = 0_i64;
    let mut rest = text.trim();
    if rest.is_empty() || rest.len() > LONGEST_MOMENT {
        return None;
    }
    while !rest.is_empty() {
        let digits = |c: char| c.is_ascii_digit() || c == '.';
        let (number, from_unit) = rest.split_at_checked(rest.find(|c| !digits(c))?)?;
        let unit_ends = from_unit.find(digits).unwrap_or(from_unit.len());
        let (unit, after) = from_unit.split_at_checked(unit_ends)?;
        let unit = match unit.trim() {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            // Less than we count in.
            "us" | "µs" | "ns" => 0,
            _ => return None,
        };
        let part = scaled(number, unit.max(1))?;
        total = total.checked_add(if unit == 0 { part.min(1) } else { part })?;
        rest = after;
    }
    Some(total)
}

/// The parts of `text` between `separator`s that do not stand in quotes.
pub(super) fn parts(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    let split = text.split(move |c| {
        let was_escaped = std::mem::take(&mut escaped);
        match c {
            '\\' if quoted => escaped = !was_escaped,
            '"' if !was_escaped => quoted = !quoted,
            _ => {}
        }
        c == separator && !quoted
    });
    split.map(str::trim).filter(|part| !part.is_empty())
}

/// An item without its parameters.
pub(super) fn bare(item: &str) -> Option<&str> {
    parts(item, ';').next()
}

/// `key=value`.
pub(super) fn parameter(text: &str) -> Option<(&str, &str)> {
    if text.starts_with('"') {
        return None;
    }
    text.split_once('=').map(|(key, value)| (key.trim(), value.trim()))
}

/// A text in quotes, or a bare word.
pub(super) fn unquoted(text: &str) -> Option<String> {
    let Some(inner) = text.strip_prefix('"') else { return Some(text.to_owned()) };
    let inner = inner.strip_suffix('"')?;
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next()? } else { c });
    }
    Some(plain)
}
