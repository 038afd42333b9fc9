use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is looked at")]
struct NoteInput {
    /// What to keep.
    text: String,
    #[serde(default)]
    pinned: bool,
}

#[derive(Serialize, JsonSchema)]
struct Note {
    id: String,
}

fn note() -> Draft<NoteInput, Note> {
    Declaration::new("notes.add", "Keeps a note.")
        .permissions([Permission::WRITE, Permission::USER_DATA])
        .behaviours(Behaviours {
            user_data: true,
            mutation: crate::Mutation::UserState,
            ..Behaviours::NONE
        })
        .effects(SideEffect::UserWrite, CostEffect::ApiCost)
}

fn rules(draft: Draft<NoteInput, Note>) -> Vec<(String, Rule)> {
    let Err(violations) = draft.build() else { return Vec::new() };
    violations.iter().map(|v| (v.field().to_owned(), v.rule())).collect()
}

#[test]
fn a_declaration_takes_its_schemas_from_the_types() {
    let declared = note().build().unwrap();
    let tool = declared.tool();
    assert_eq!(tool.schema, "Note");
    let input = tool.input_schema.as_ref().unwrap();
    assert_eq!(input["properties"]["text"]["description"], "What to keep.");
    assert_eq!(input["required"], serde_json::json!(["text"]));
    assert_eq!(input["additionalProperties"], false);
    assert_eq!(tool.output_schema.as_ref().unwrap()["properties"]["id"]["type"], "string");
}

#[test]
fn a_tool_needs_an_account_and_is_closed_to_everyone_unless_it_says_otherwise() {
    let tool = note().build().unwrap().erase().tool;
    assert!(tool.auth_required && !tool.access.anonymous_allowed);
    assert_eq!(tool.agent.compat_name.as_deref(), Some("notes_add"));
    assert_eq!(tool.retry(), Retry::Never);
}

#[test]
fn effects_that_do_not_follow_from_the_behaviours_are_refused() {
    assert_eq!(
        rules(note().effects(SideEffect::None, CostEffect::LlmCost)),
        [
            ("sideEffect".to_owned(), Rule::BehaviourSideEffect),
            ("costEffect".to_owned(), Rule::BehaviourCostEffect)
        ]
    );
}

#[test]
fn what_is_not_declared_is_refused() {
    let bare = || Declaration::<NoteInput, Note>::new("notes.add", "Keeps a note.");
    assert_eq!(rules(bare()), [("sideEffect".to_owned(), Rule::MissingField)]);
    assert_eq!(
        rules(bare().effects(SideEffect::None, CostEffect::None)),
        [("behaviours".to_owned(), Rule::MissingField)]
    );
    assert_eq!(
        rules(bare().effects(SideEffect::None, CostEffect::None).behaviours(Behaviours::NONE)),
        [("permissions".to_owned(), Rule::HasPermission)]
    );
}

#[test]
fn a_name_that_is_not_canonical_or_is_reserved_is_refused() {
    for (name, rule) in
        [("get_world_state", Rule::ReservedName), ("Notes.add", Rule::CanonicalName)]
    {
        let error = Declaration::<NoteInput, Note>::new(name, "").build().unwrap_err();
        assert_eq!(error.iter().next().unwrap().rule(), rule, "{name}");
    }
}

#[test]
fn a_live_trade_is_never_offered_by_default() {
    let draft = || {
        Declaration::<NoteInput, Note>::new("execution.place", "Trades.")
            .permissions([Permission::TRADE])
            .behaviours(Behaviours { trade: crate::Trade::Live, venue: true, ..Behaviours::NONE })
            .effects(SideEffect::LiveTrade, CostEffect::VenueRequestCost)
    };
    assert!(!draft().build().unwrap().tool().agent.default_enabled);
    assert_eq!(
        rules(draft().retry(Retry::Idempotent)),
        [("retry".to_owned(), Rule::TradeIsNotRepeated)]
    );
}
