use super::*;

#[test]
fn side_effects_are_ranked_as_the_contract_says() {
    let words: Vec<&str> = SideEffect::ALL.iter().map(|e| e.as_str()).collect();
    assert_eq!(
        words,
        [
            "none",
            "auth_telemetry_write",
            "user_write",
            "secret",
            "runtime",
            "paper_trade",
            "live_trade"
        ]
    );
    assert!(SideEffect::ALL.is_sorted());
}

#[test]
fn cost_effects_are_ranked_as_the_contract_says() {
    let words: Vec<&str> = CostEffect::ALL.iter().map(|e| e.as_str()).collect();
    assert_eq!(words, ["none", "api_cost", "search_cost", "venue_request_cost", "llm_cost"]);
    assert!(CostEffect::ALL.is_sorted());
}

#[test]
fn llm_cost_is_a_cost_and_never_a_side_effect() {
    assert!(SideEffect::parse("llm_cost").is_none());
    assert_eq!(CostEffect::parse("llm_cost"), Some(CostEffect::LlmCost));
}

#[test]
fn words_on_the_wire_are_the_display_words() {
    for effect in SideEffect::ALL {
        assert_eq!(serde_json::to_value(effect).unwrap(), effect.as_str());
        assert_eq!(SideEffect::parse(effect.as_str()), Some(*effect));
    }
    for status in Status::ALL {
        assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
    }
}

#[test]
fn only_three_risks_forbid() {
    for risk in Risk::FORBIDDEN {
        assert!(Risk::parse(risk).unwrap().is_forbidden());
    }
    assert!(!Risk::parse("stale_data").unwrap().is_forbidden());
    assert!(Risk::parse("Not A Risk").is_err());
}

#[test]
fn effects_are_not_repeated_unless_a_contract_says_how() {
    assert_eq!(Retry::default_for(SideEffect::None), Retry::Idempotent);
    for effect in SideEffect::ALL.iter().filter(|e| **e != SideEffect::None) {
        assert_eq!(Retry::default_for(*effect), Retry::Never);
    }
}
