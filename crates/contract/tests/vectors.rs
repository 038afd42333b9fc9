//! The golden vectors of the contract crate, run against the product.

#![cfg(test)]

use std::collections::BTreeSet;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tollgate_contract::{
    ErrorCode, Manifest, Reason, Violations,
    canonical::canonical,
    declare::ToolDeclaration,
    input_hash, json,
    redact::{redact_text, redacted},
};

fn suite<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).expect("a suite has the form that its README says")
}

/// Runs each case and fails with all that went wrong, not only the first.
fn run<C>(cases: Vec<C>, name: impl Fn(&C) -> String, check: impl Fn(&C) -> Result<(), String>) {
    assert!(!cases.is_empty());
    let failed: Vec<String> = cases
        .iter()
        .filter_map(|case| check(case).err().map(|problem| format!("{}: {problem}", name(case))))
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {} failed:\n{}",
        failed.len(),
        cases.len(),
        failed.join("\n")
    );
}

fn equal<T: PartialEq + std::fmt::Debug>(expected: T, found: T) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("expected {expected:?}, found {found:?}")) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CanonicalSuite {
    #[serde(rename = "suite")]
    _suite: String,
    #[serde(rename = "version")]
    _version: u32,
    numbers: Vec<NumberCase>,
    cases: Vec<CanonicalCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NumberCase {
    bits: String,
    written: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CanonicalCase {
    name: String,
    text: Option<String>,
    hex: Option<String>,
    canonical: Option<String>,
    sha256: Option<String>,
    error: Option<ErrorCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorCase {
    kind: String,
    pointer: String,
}

impl CanonicalCase {
    fn bytes(&self) -> Vec<u8> {
        match (&self.text, &self.hex) {
            (Some(text), None) => text.clone().into_bytes(),
            (None, Some(hex)) => hex
                .as_bytes()
                .chunks(2)
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect(),
            _ => panic!("{}: exactly one of text and hex", self.name),
        }
    }
}

#[test]
fn canonical_vectors() {
    let suite: CanonicalSuite = suite(include_str!("../../../spec/vectors/canonical.json"));
    run(
        suite.cases,
        |case| case.name.clone(),
        |case| {
            let parsed = json::parse(&case.bytes());
            match (&case.canonical, &case.error, parsed) {
                (Some(expected), None, Ok(value)) => {
                    equal(expected.clone(), canonical(&value).map_err(|error| error.to_string())?)?;
                    // Without secrets the redacted form is the form itself, and so is its hash.
                    equal(case.sha256.clone(), Some(input_hash(&value).unwrap().to_string()))
                }
                (None, Some(expected), Err(error)) => {
                    equal(expected.kind.as_str(), error.kind().as_str())?;
                    match expected.kind.as_str() {
                        "syntax" | "too_deep" => Ok(()),
                        _ => equal(expected.pointer.as_str(), error.pointer()),
                    }
                }
                (_, _, found) => Err(format!("found {found:?}")),
            }
        },
    );
    run(
        suite.numbers,
        |case| case.bits.clone(),
        |case| {
            let number = f64::from_bits(u64::from_str_radix(&case.bits, 16).unwrap());
            let written = serde_json_canonicalizer::to_string(&number).unwrap();
            equal(case.written.clone(), written)
        },
    );
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RedactionCase {
    name: String,
    input: Option<Value>,
    expected: Option<Value>,
    text: Option<String>,
    expected_text: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Suite<C> {
    #[serde(rename = "suite")]
    _suite: String,
    #[serde(rename = "version")]
    _version: u32,
    cases: Vec<C>,
}

#[test]
fn redaction_vectors() {
    let suite: Suite<RedactionCase> = suite(include_str!("../../../spec/vectors/redaction.json"));
    run(
        suite.cases,
        |case| case.name.clone(),
        |case| match (&case.input, &case.expected, &case.text, &case.expected_text) {
            (Some(input), Some(expected), None, None) => {
                equal(expected, redacted(input).as_ref())?;
                equal(expected, redacted(expected).as_ref())
            }
            (None, None, Some(text), Some(expected)) => {
                equal(expected.as_str(), &redact_text(text))?;
                equal(expected.as_str(), &redact_text(expected))
            }
            _ => Err("a case is about a value or about a text".to_owned()),
        },
    );
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct HashCase {
    name: String,
    input: Value,
    hashed: String,
    input_hash: String,
}

#[test]
fn input_hash_vectors() {
    let suite: Suite<HashCase> = suite(include_str!("../../../spec/vectors/input-hash.json"));
    run(
        suite.cases,
        |case| case.name.clone(),
        |case| {
            equal(case.hashed.clone(), canonical(&redacted(&case.input)).unwrap())?;
            equal(case.input_hash.clone(), input_hash(&case.input).unwrap().to_string())
        },
    );
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestSuite {
    #[serde(rename = "suite")]
    _suite: String,
    #[serde(rename = "version")]
    _version: u32,
    base: Value,
    behaviours: Value,
    cases: Vec<ManifestCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestCase {
    name: String,
    tool: Option<Value>,
    behaviours: Option<Value>,
    manifest: Option<Value>,
    violations: Vec<ExpectedViolation>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedViolation {
    field: String,
    rule: String,
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().shift_remove(key);
        } else {
            merge(target.as_object_mut().unwrap().entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// A contract by itself is a document with one entry, in a mode that takes every status; where it
/// reads well, it is also checked against its behaviours, as a pack's declaration is.
fn load(base: &ManifestSuite, case: &ManifestCase) -> Result<Manifest, Violations> {
    if let Some(manifest) = &case.manifest {
        return Manifest::parse(manifest.to_string().as_bytes());
    }
    let (mut tool, mut behaviours) = (base.base.clone(), base.behaviours.clone());
    merge(&mut tool, case.tool.as_ref().expect("a case has a tool or a manifest"));
    if let Some(patch) = &case.behaviours {
        merge(&mut behaviours, patch);
    }
    let declaration = serde_json::json!({"tool": tool, "behaviours": behaviours});
    match serde_json::from_value::<ToolDeclaration>(declaration) {
        Ok(declaration) => Manifest::from_declarations([declaration]),
        Err(_) => {
            let document = serde_json::json!({"schemaVersion": "0.3.0-draft", "mode": "review", "tools": [tool]});
            Manifest::parse(document.to_string().as_bytes())
        }
    }
}

#[test]
fn manifest_vectors() {
    let mut suite: ManifestSuite = suite(include_str!("../../../spec/vectors/manifest.json"));
    let cases = std::mem::take(&mut suite.cases);
    run(
        cases,
        |case| case.name.clone(),
        |case| {
            let expected: BTreeSet<(String, String)> =
                case.violations.iter().map(|v| (v.field.clone(), v.rule.clone())).collect();
            let found = match load(&suite, case) {
                Ok(_) => BTreeSet::new(),
                Err(violations) => violations
                    .iter()
                    .map(|v| (v.field().to_owned(), v.rule().to_string()))
                    .collect(),
            };
            equal(expected, found)
        },
    );
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorSuite {
    #[serde(rename = "suite")]
    _suite: String,
    #[serde(rename = "version")]
    _version: u32,
    codes: Vec<CodeCase>,
    reasons: Vec<ReasonCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CodeCase {
    code: String,
    status: Option<u16>,
    class: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReasonCase {
    reason: String,
    code: Option<String>,
}

#[test]
fn error_vectors() {
    let suite: ErrorSuite = suite(include_str!("../../../spec/vectors/errors.json"));
    let listed: BTreeSet<&str> = suite.codes.iter().map(|case| case.code.as_str()).collect();
    assert_eq!(listed, ErrorCode::ALL.iter().map(|code| code.as_str()).collect());
    let listed: BTreeSet<&str> = suite.reasons.iter().map(|case| case.reason.as_str()).collect();
    assert_eq!(listed, Reason::ALL.iter().map(|reason| reason.as_str()).collect());
    run(
        suite.codes,
        |case| case.code.clone(),
        |case| {
            let code = ErrorCode::parse(&case.code).ok_or("no such code")?;
            equal(case.status, code.status().map(|status| status.get()))?;
            equal(case.class.as_str(), code.class_name())
        },
    );
    run(
        suite.reasons,
        |case| case.reason.clone(),
        |case| {
            let reason = Reason::parse(&case.reason).ok_or("no such reason")?;
            equal(case.code.as_deref(), reason.code().map(ErrorCode::as_str))
        },
    );
}
