use super::*;

/// The rows of the RFC's annotation table that a behaviour implies, by their names there.
#[test]
fn the_annotation_table_of_the_rfc() {
    const NONE: Behaviours = Behaviours::NONE;
    let table = [
        ("Strict manifest inspection", NONE, "none", "none"),
        ("Explicit free cached public read", NONE, "none", "none"),
        ("Normal hosted API read", Behaviours { paid_upstream: true, ..NONE }, "none", "api_cost"),
        ("Search-backed read", Behaviours { search: true, ..NONE }, "none", "search_cost"),
        (
            "Venue/provider-backed read",
            Behaviours { venue: true, ..NONE },
            "none",
            "venue_request_cost",
        ),
        ("LLM-backed read", Behaviours { llm: true, ..NONE }, "none", "llm_cost"),
        ("User-specific read", Behaviours { user_data: true, ..NONE }, "none", "api_cost"),
        (
            "Saved object write",
            Behaviours { mutation: Mutation::UserState, ..NONE },
            "user_write",
            "none",
        ),
        ("Secret mutation", Behaviours { secrets: true, ..NONE }, "secret", "none"),
        (
            "Key/session mutation",
            Behaviours { mutation: Mutation::AuthTelemetry, ..NONE },
            "auth_telemetry_write",
            "none",
        ),
        (
            "Runtime start/stop",
            Behaviours { mutation: Mutation::Runtime, ..NONE },
            "runtime",
            "none",
        ),
        (
            "Paper trade",
            Behaviours { trade: Trade::Paper, venue: true, ..NONE },
            "paper_trade",
            "venue_request_cost",
        ),
        (
            "Live trade",
            Behaviours { trade: Trade::Live, venue: true, ..NONE },
            "live_trade",
            "venue_request_cost",
        ),
    ];
    for (row, behaviours, side_effect, cost_effect) in table {
        assert_eq!(behaviours.side_effect().as_str(), side_effect, "{row}");
        assert_eq!(behaviours.cost_effect().as_str(), cost_effect, "{row}");
    }
}

#[test]
fn the_highest_effect_wins() {
    let all = Behaviours {
        account_context: true,
        user_data: true,
        paid_upstream: true,
        search: true,
        llm: true,
        venue: true,
        mutation: Mutation::UserState,
        secrets: true,
        trade: Trade::Paper,
    };
    assert_eq!(all.side_effect(), SideEffect::PaperTrade);
    assert_eq!(all.cost_effect(), CostEffect::LlmCost);
}

#[test]
fn all_nine_must_be_stated() {
    let mut value = serde_json::to_value(Behaviours::NONE).unwrap();
    assert_eq!(value.as_object().unwrap().len(), 9);
    value.as_object_mut().unwrap().remove("llm");
    assert!(serde_json::from_value::<Behaviours>(value).is_err());
}
