use serde_json::json;

use super::*;

#[test]
fn a_confirmation_word_is_kept_as_its_hash_only() {
    let section: TradeGuardrails =
        serde_json::from_value(json!({"confirmToken": "canary word"})).unwrap();
    let written = serde_json::to_string(&section).unwrap();
    assert!(!written.contains("canary") && written.contains("sha256:"), "{written}");
    assert!(!format!("{section:?}").contains("canary"));
    // What was written is read back as the same word.
    let again: TradeGuardrails = serde_json::from_str(&written).unwrap();
    assert_eq!(again, section);
    let token = again.confirm_token.unwrap();
    assert!(token.matches("canary word") && !token.matches("canary"));
}

#[test]
fn an_empty_or_broken_confirmation_word_does_not_load() {
    for bad in ["", "sha256:", "sha256:abc"] {
        assert!(
            serde_json::from_value::<TradeGuardrails>(json!({"confirmToken": bad})).is_err(),
            "{bad}"
        );
    }
}

#[test]
fn a_misspelt_guardrail_does_not_load() {
    assert!(serde_json::from_value::<TradeGuardrails>(json!({"maxQuantitty": 5})).is_err());
    assert!(serde_json::from_value::<TradeGuardrails>(json!({"maxQuantity": -5})).is_err());
    assert!(serde_json::from_value::<TradeGuardrails>(json!({"maxOrderCostCents": 1.5})).is_err());
}
