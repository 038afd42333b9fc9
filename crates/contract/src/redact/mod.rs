//! Redaction: what a trace, an event or a log may keep of a value.
//!
//! A value is redacted by the name of the field it stands under ([`field`]), and every string by what
//! it contains: key formats, bearer tokens, PEM blocks, passwords in URLs ([`pattern`]) and
//! assignments such as `password=…` in free text ([`assignment`]). What is taken out leaves a fixed
//! placeholder that says why and nothing about the value. Redacting twice is redacting once: the
//! stages run one after the other, none looks into a placeholder, and no pattern depends on what
//! stands around its match. Time is linear in the size of the input.

mod assignment;
mod field;
mod pattern;
mod placeholder;

use std::{borrow::Cow, collections::HashMap};

use serde_json::{Map, Value};

pub use field::is_sensitive as is_sensitive_field;
pub use placeholder::Kind;

/// The version of these rules. It is kept with every trace entry, because a hash over redacted input
/// can only be compared with one made by the same rules.
pub const REDACTION_VERSION: u32 = 1;

/// Redacts `value` in place.
pub fn redact(value: &mut Value) {
    // An explicit stack: a value built by a tool may be nested deeper than the call stack is.
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            Value::String(text) => {
                if let Cow::Owned(clean) = redact_text(text) {
                    *text = clean;
                }
            }
            Value::Array(items) => {
                for at in hidden_items(items) {
                    if let Some(item) = items.get_mut(at) {
                        *item = Value::from(Kind::Field.placeholder());
                    }
                }
                pending.extend(items);
            }
            Value::Object(map) => {
                let hides_value = names_a_secret(map);
                redact_keys(map);
                for (key, inner) in map.iter_mut() {
                    if hides(key, inner) || (hides_value && key == "value" && tells(inner)) {
                        *inner = Value::from(Kind::Field.placeholder());
                    } else {
                        pending.push(inner);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// `value` redacted; borrowed when there was nothing to take out.
pub fn redacted(value: &Value) -> Cow<'_, Value> {
    if !holds_secret(value) {
        return Cow::Borrowed(value);
    }
    let mut copy = value.clone();
    redact(&mut copy);
    Cow::Owned(copy)
}

/// `text` with every secret in it replaced; borrowed when there was none.
pub fn redact_text(text: &str) -> Cow<'_, str> {
    // Assignments come last: the earlier stages then see nothing new in what they leave behind.
    let mut clean = Cow::Borrowed(text);
    for stage in [
        pattern::pem_blocks,
        pattern::token_formats,
        pattern::key_formats,
        pattern::credentials,
        assignment::assignments,
    ] {
        let next = match stage(&clean) {
            Cow::Owned(changed) => Some(changed),
            Cow::Borrowed(_) => None,
        };
        if let Some(changed) = next {
            clean = Cow::Owned(changed);
        }
    }
    clean
}

fn holds_secret(value: &Value) -> bool {
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            Value::String(text) if is_dirty(text) => return true,
            Value::Array(items) => {
                if !hidden_items(items).is_empty() {
                    return true;
                }
                pending.extend(items);
            }
            Value::Object(map) => {
                let hides_value = names_a_secret(map) && map.get("value").is_some_and(tells);
                if hides_value || map.iter().any(|(key, inner)| hides(key, inner) || is_dirty(key))
                {
                    return true;
                }
                pending.extend(map.values());
            }
            _ => {}
        }
    }
    false
}

fn is_dirty(text: &str) -> bool {
    matches!(redact_text(text), Cow::Owned(_))
}

/// Does the name `key` hide `value`?
fn hides(key: &str, value: &Value) -> bool {
    tells(value) && hides_by_name(key)
}

/// Is there something to hide? A flag, a null, an empty text and our own placeholder tell nothing.
fn tells(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        Value::String(text) => !text.is_empty() && text != Kind::Field.placeholder(),
        Value::Number(_) | Value::Array(_) | Value::Object(_) => true,
    }
}

/// A name that was redacted says nothing any more: the words of a placeholder are ours.
fn hides_by_name(name: &str) -> bool {
    is_sensitive_field(name) && !placeholder::is_in(name)
}

/// Is this `{"name": "X-Api-Key", "value": …}`?
fn names_a_secret(map: &Map<String, Value>) -> bool {
    let named = |member: &str| map.get(member).and_then(Value::as_str).is_some_and(hides_by_name);
    ["name", "key", "header"].into_iter().any(named)
}

/// The items that the one before them hides: `["--password", …]`, and a pair `["X-Api-Key", …]`.
fn hidden_items(items: &[Value]) -> Vec<usize> {
    let is_pair = items.len() == 2;
    let hides_next = |item: &Value| {
        let Some(name) = item.as_str() else { return false };
        let is_header = name.contains('-') || assignment::is_header(name);
        (name.starts_with('-') || (is_pair && is_header)) && hides_by_name(name)
    };
    let pairs = items.iter().zip(items.iter().skip(1)).enumerate();
    pairs
        .filter(|(_, (item, next))| tells(next) && hides_next(item))
        .map(|(at, _)| at + 1)
        .collect()
}

/// Redacts keys that are secrets themselves. Keys that become equal are numbered in the order of what
/// they were, so that nothing is lost and the order of the object does not matter.
fn redact_keys(map: &mut Map<String, Value>) {
    if !map.keys().any(|key| is_dirty(key)) {
        return;
    }
    let mut entries: Vec<(String, Value)> = std::mem::take(map).into_iter().collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    // Clean keys keep their names, whatever the redacted ones turn into.
    let (dirty, clean): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(key, _)| is_dirty(key));
    map.extend(clean);
    let mut next: HashMap<String, usize> = HashMap::new();
    for (key, value) in dirty {
        // A key names what stands under it, also when the key itself is hidden.
        let value =
            if hides(&key, &value) { Value::from(Kind::Field.placeholder()) } else { value };
        let base = redact_text(&key).into_owned();
        let number = next.entry(base.clone()).or_insert(1);
        let mut name = base.clone();
        while map.contains_key(&name) {
            *number += 1;
            name = format!("{base}#{number}");
        }
        map.insert(name, value);
    }
}

#[cfg(test)]
#[path = "../redact_tests.rs"]
mod tests;
