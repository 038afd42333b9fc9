//! `ask`: what needs a person's answer before it happens.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_contract::{ContractTool, Permission, SideEffect, ToolPattern, canonical::canonical};

/// One entry of `ask`. Everything that is given must match; at least one thing must be given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "RawAskRule")]
pub struct AskRule {
    /// Tools by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolPattern>,
    /// Tools that need this permission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission: Option<Permission>,
    /// Tools with this side effect or a higher one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side_effect: Option<SideEffect>,
    /// Inputs like this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Condition>,
    /// What the person who answers should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many different keys must say yes, where it is more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvers: Option<u8>,
}

impl AskRule {
    /// Does this entry want a person for this call?
    pub fn matches(&self, tool: &ContractTool, input: &Value) -> bool {
        self.tool.as_ref().is_none_or(|pattern| pattern.matches(&tool.name))
            && self.permission.as_ref().is_none_or(|permission| tool.needs(permission))
            && self.side_effect.is_none_or(|least| tool.side_effect >= least)
            && self.input.as_ref().is_none_or(|condition| condition.holds(input))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawAskRule {
    tool: Option<ToolPattern>,
    permission: Option<Permission>,
    side_effect: Option<SideEffect>,
    input: Option<Condition>,
    reason: Option<String>,
    approvers: Option<u8>,
}

/// The most people that an entry may want.
const MOST_APPROVERS: u8 = 5;

impl TryFrom<RawAskRule> for AskRule {
    type Error = &'static str;

    fn try_from(raw: RawAskRule) -> Result<Self, Self::Error> {
        let RawAskRule { tool, permission, side_effect, input, reason, approvers } = raw;
        if tool.is_none() && permission.is_none() && side_effect.is_none() && input.is_none() {
            return Err(
                "an `ask` entry needs at least one of `tool`, `permission`, `sideEffect` and `input`",
            );
        }
        if approvers.is_some_and(|number| !(1..=MOST_APPROVERS).contains(&number)) {
            return Err("`approvers` is a number from 1 to 5");
        }
        Ok(Self { tool, permission, side_effect, input, reason, approvers })
    }
}

/// A condition on an input: a place in it, and one test of what stands there.
///
/// When nothing stands there, or something that the test cannot be applied to, the condition holds: a
/// restriction that reads what is not known applies. Only `exists` can tell absence apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "RawCondition", try_from = "RawCondition")]
pub struct Condition {
    pointer: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    Exists(bool),
    Equals(Value),
    NotEquals(Value),
    OneOf(Vec<Value>),
    NotOneOf(Vec<Value>),
    Above(f64),
    Below(f64),
    StartsWith(String),
    NotStartsWith(String),
    Contains(String),
}

impl Condition {
    /// Does it hold for `input`, or can that not be told?
    pub fn holds(&self, input: &Value) -> bool {
        let found = input.pointer(&self.pointer);
        if let Test::Exists(wanted) = self.test {
            return found.is_some() == wanted;
        }
        found.and_then(|value| self.test.of(value)).unwrap_or(true)
    }
}

impl Test {
    /// The answer for `value`; `None` when the test cannot be applied to it.
    fn of(&self, value: &Value) -> Option<bool> {
        match self {
            Self::Exists(wanted) => Some(*wanted),
            Self::Equals(other) => same(value, other),
            Self::NotEquals(other) => same(value, other).map(|same| !same),
            Self::OneOf(others) => any_same(value, others),
            Self::NotOneOf(others) => any_same(value, others).map(|same| !same),
            Self::Above(bound) => value.as_f64().map(|number| number > *bound),
            Self::Below(bound) => value.as_f64().map(|number| number < *bound),
            Self::StartsWith(prefix) => value.as_str().map(|text| text.starts_with(prefix)),
            Self::NotStartsWith(prefix) => value.as_str().map(|text| !text.starts_with(prefix)),
            Self::Contains(part) => value.as_str().map(|text| text.contains(part)),
        }
    }
}

/// Do two values mean the same? They do when their canonical forms are equal.
fn same(a: &Value, b: &Value) -> Option<bool> {
    Some(canonical(a).ok()? == canonical(b).ok()?)
}

fn any_same(value: &Value, others: &[Value]) -> Option<bool> {
    let answers: Option<Vec<bool>> = others.iter().map(|other| same(value, other)).collect();
    answers.map(|answers| answers.contains(&true))
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCondition {
    pointer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exists: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    equals: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    not_equals: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    one_of: Option<Vec<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_one_of: Option<Vec<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    above: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    below: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    starts_with: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_starts_with: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    contains: Option<String>,
}

/// Reads a value that is given, also when it is null: `"equals": null` tests for null.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl TryFrom<RawCondition> for Condition {
    type Error = String;

    fn try_from(raw: RawCondition) -> Result<Self, Self::Error> {
        if !raw.pointer.is_empty() && !raw.pointer.starts_with('/') {
            return Err(format!(
                "`pointer` is a JSON pointer and starts with `/`: try `/{}`",
                raw.pointer
            ));
        }
        let is_finite = |bound: &Option<f64>| bound.is_none_or(f64::is_finite);
        if !is_finite(&raw.above) || !is_finite(&raw.below) {
            return Err("`above` and `below` need a number that is finite".to_owned());
        }
        if [&raw.one_of, &raw.not_one_of].into_iter().flatten().any(Vec::is_empty) {
            return Err("`oneOf` and `notOneOf` need at least one value".to_owned());
        }
        let tests = [
            raw.exists.map(Test::Exists),
            raw.equals.map(Test::Equals),
            raw.not_equals.map(Test::NotEquals),
            raw.one_of.map(Test::OneOf),
            raw.not_one_of.map(Test::NotOneOf),
            raw.above.map(Test::Above),
            raw.below.map(Test::Below),
            raw.starts_with.map(Test::StartsWith),
            raw.not_starts_with.map(Test::NotStartsWith),
            raw.contains.map(Test::Contains),
        ];
        let mut given = tests.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(test), None) => Ok(Self { pointer: raw.pointer, test }),
            _ => Err("a condition needs exactly one test: `exists`, `equals`, `notEquals`, `oneOf`, `notOneOf`, \
                      `above`, `below`, `startsWith`, `notStartsWith` or `contains`"
                .to_owned()),
        }
    }
}

impl From<Condition> for RawCondition {
    fn from(condition: Condition) -> Self {
        let mut raw = Self { pointer: condition.pointer, ..Self::default() };
        match condition.test {
            Test::Exists(wanted) => raw.exists = Some(wanted),
            Test::Equals(value) => raw.equals = Some(value),
            Test::NotEquals(value) => raw.not_equals = Some(value),
            Test::OneOf(values) => raw.one_of = Some(values),
            Test::NotOneOf(values) => raw.not_one_of = Some(values),
            Test::Above(bound) => raw.above = Some(bound),
            Test::Below(bound) => raw.below = Some(bound),
            Test::StartsWith(prefix) => raw.starts_with = Some(prefix),
            Test::NotStartsWith(prefix) => raw.not_starts_with = Some(prefix),
            Test::Contains(part) => raw.contains = Some(part),
        }
        raw
    }
}

#[cfg(test)]
#[path = "ask_tests.rs"]
mod tests;
