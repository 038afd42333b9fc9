use std::fmt::Write;

use serde_json::json;

use super::*;
use crate::{
    CostEffect, InputHash, InvalidKey, KeyScope, Layer, Permission, Risk, SideEffect, Status,
    ToolName,
    id::{ApprovalId, CallId},
    schema::InputProblem,
    verdict::Guardrail,
};

fn tool() -> ToolName {
    ToolName::parse("fs.write_text").unwrap()
}

/// One error of every kind. `canary` goes wherever a text from outside can go.
fn every_error(canary: &str) -> Vec<Error> {
    let id = [7; 10];
    vec![
        InvalidRequest::new(canary, vec!["agent_id".to_owned()]).into(),
        InvalidRequest::new(canary, Vec::new()).into(),
        MissingApiKey::new(tool()).into(),
        MissingApiKey::new(None).into(),
        InvalidApiKey::new(InvalidKey::Revoked).into(),
        ScopeMissing::new(KeyScope::Call, vec![KeyScope::Ask]).into(),
        UnknownTool::new(canary, ToolName::parse("world.read").ok()).into(),
        UnknownTool::new("nope.nope", None).into(),
        NotFound::new("session", canary).into(),
        ToolNotActive::new(tool(), Status::Deferred).into(),
        ToolNotActive::new(tool(), Status::Quarantined).into(),
        ToolNotCallable::new(tool()).into(),
        ForbiddenRisk::new(tool(), Risk::parse("unconfined_execution").unwrap()).into(),
        PermissionDenied::new(tool(), Layer::Key, "write").into(),
        PermissionNotGranted::new(tool(), Layer::Session, vec![Permission::FS]).into(),
        SideEffectExceeded::new(tool(), SideEffect::UserWrite, SideEffect::None, Layer::Key).into(),
        CostEffectExceeded::new(tool(), CostEffect::LlmCost, CostEffect::ApiCost, Layer::Server)
            .into(),
        InvalidInput::new(
            tool(),
            vec![InputProblem { pointer: "/path".to_owned(), message: "is missing".to_owned() }],
        )
        .into(),
        TradeGuardrail::new(tool(), Guardrail::MaxQuantity, Layer::Key, canary).into(),
        TradeGuardrail::new(tool(), Guardrail::Trade, None, canary).into(),
        CapabilityMissing::new(tool(), canary, canary, canary).into(),
        ApprovalDenied::new(tool(), ApprovalId::from_parts(0, id), canary).into(),
        BudgetDenied::new(
            tool(),
            Reason::HardLimitReached,
            "github:core".to_owned(),
            Some(30),
            None,
        )
        .into(),
        BudgetDenied::new(None, Reason::UnmappedWorkload, None, None, None).into(),
        Conflict::new(canary).into(),
        OutcomeUnknown::new(tool(), CallId::from_parts(0, id)).into(),
        ReplayMiss::new(tool(), InputHash::parse(&"0".repeat(64)).unwrap()).into(),
        PayloadTooLarge::new(1024_u64).into(),
        ToolFailed::new(tool(), canary).into(),
        Timeout::new(tool(), 1000_u64).into(),
        Cancelled::new(tool()).into(),
        SandboxUnavailable::new(tool(), canary).into(),
        LedgerUnavailable::new(canary).into(),
        Halted::new("all", false, canary).into(),
        Halted::new("all", true, canary).into(),
        Internal::new(canary).into(),
        GateUnavailable::new(canary, canary).into(),
    ]
}

#[test]
fn every_code_has_an_error() {
    let made: std::collections::BTreeSet<ErrorCode> =
        every_error("x").iter().map(Error::code).collect();
    assert_eq!(made, ErrorCode::ALL.iter().copied().collect());
}

#[test]
fn the_words_of_errors() {
    let mut words = String::new();
    for error in every_error("what went wrong") {
        let _ = writeln!(words, "{}\n  caller:   {error}", error.code());
        if error.operator() != error.to_string() {
            let _ = writeln!(words, "  operator: {}", error.operator());
        }
        let _ = writeln!(words, "  details:  {}", error.details());
    }
    insta::assert_snapshot!(words);
}

#[test]
fn no_error_carries_a_key_whatever_it_is_told() {
    let canary = format!("tg_key_{}", "canary00".repeat(8));
    for text in [
        canary.clone(),
        format!("Authorization: Bearer {canary}"),
        format!("{} {canary}", "x".repeat(75)),
    ] {
        for error in every_error(&text) {
            let shown = format!(
                "{error} {} {} {error:?} {}",
                error.operator(),
                error.details(),
                serde_json::to_string(&error.body(None)).unwrap()
            );
            assert!(!shown.contains("canary0"), "{shown}");
        }
    }
}

#[test]
fn what_only_the_operator_should_know_is_not_in_the_body() {
    for error in [
        Error::from(Internal::new("the-cause")),
        LedgerUnavailable::new("the-cause").into(),
        SandboxUnavailable::new(tool(), "the-cause").into(),
    ] {
        assert!(!serde_json::to_string(&error.body(None)).unwrap().contains("the-cause"));
        assert!(error.operator().contains("the-cause"));
    }
    let refused = Error::from(InvalidApiKey::new(InvalidKey::Revoked));
    assert!(!serde_json::to_string(&refused.body(None)).unwrap().contains("revoked"));
}

#[test]
fn a_body_has_the_shape_of_the_contract() {
    let id = RequestId::from_parts(0, [0; 10]);
    let body = Error::from(MissingApiKey::new(tool())).body(Some(id));
    let value = serde_json::to_value(&body).unwrap();
    let error = value["error"].as_object().unwrap();
    assert_eq!(value.as_object().unwrap().len(), 1);
    assert_eq!(error.keys().collect::<Vec<_>>(), ["code", "message", "details", "requestId"]);
    assert_eq!(value["error"]["code"], json!("MISSING_API_KEY"));
}

#[test]
fn an_error_status_is_never_a_success() {
    for number in [0, 100, 200, 204, 302, 399, 600, u16::MAX] {
        assert_eq!(ErrorStatus::new(number).get(), 500);
    }
    assert_eq!(ErrorStatus::new(404).get(), 404);
}

#[test]
fn every_code_has_a_page_with_its_parts() {
    for code in ErrorCode::ALL {
        let page = code.page();
        let heads: Vec<&str> = page.lines().filter(|line| line.starts_with('#')).collect();
        assert_eq!(
            heads,
            [
                &format!("# {code}"),
                "## When it happens",
                "## What to do",
                "## For the operator",
                "## Example"
            ],
        );
        let second = page.lines().nth(2).unwrap();
        match code.status() {
            Some(status) => assert!(second.starts_with(&format!("HTTP {status} ·")), "{code}"),
            None => assert!(second.starts_with("No HTTP status"), "{code}"),
        }
        assert!(second.contains(&format!("`{}`", code.class_name())), "{code}");
        let example =
            page.split("```json").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let example: Value = serde_json::from_str(example).unwrap();
        assert_eq!(example["error"]["code"], code.as_str());
    }
}

/// The example of a page shows the details that the error really has.
#[test]
fn the_examples_of_the_pages_have_the_details_of_the_errors() {
    for error in every_error("x") {
        let page = error.code().page();
        let example =
            page.split("```json").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let example: Value = serde_json::from_str(example).unwrap();
        let keys = |value: &Value| -> std::collections::BTreeSet<String> {
            value.as_object().unwrap().keys().cloned().collect()
        };
        let shown = keys(&example["error"]["details"]);
        let real = keys(&error.details());
        // A list that is empty is left out, so an example may show more than this error has.
        assert!(real.is_subset(&shown), "{}: {real:?} {shown:?}", error.code());
    }
}
