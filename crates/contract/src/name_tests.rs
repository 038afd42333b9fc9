use proptest::prelude::*;

use super::*;

#[test]
fn canonical_names_are_read() {
    for name in ["world.read", "fs.read_text", "a.b.c", "x1.y_2", "manifest.list"] {
        assert_eq!(ToolName::parse(name).unwrap().as_str(), name);
    }
}

#[test]
fn what_is_not_canonical_is_refused() {
    let bad = [
        "",
        ".",
        "world",
        "World.read",
        "world.",
        ".read",
        "world..read",
        "1a.b",
        "a.1b",
        "_a.b",
        "a-b.c",
        "a.b ",
        " a.b",
        "a.b\n",
        "é.b",
        "a.é",
    ];
    for name in bad {
        assert!(matches!(ToolName::parse(name), Err(NameError::NotCanonical(_))), "{name:?}");
    }
}

#[test]
fn reserved_names_are_never_tool_names() {
    for name in [
        "events.search",
        "events.a.b",
        "market.related",
        "auth.status",
        "investigations.create",
        "intents.propose",
        "webhooks.create",
        "get_world_state",
        "get_regime_history",
    ] {
        assert!(matches!(ToolName::parse(name), Err(NameError::Reserved(_))), "{name}");
    }
    // Near neighbours are ordinary names.
    for name in ["eventsx.search", "market.related_markets", "intents.create", "auth.status2"] {
        assert!(ToolName::parse(name).is_ok(), "{name}");
    }
}

#[test]
fn a_name_has_a_greatest_length() {
    let longest = format!("a.{}", "b".repeat(MAX_NAME_LEN - 2));
    assert!(ToolName::parse(&longest).is_ok());
    assert!(matches!(ToolName::parse(&format!("{longest}b")), Err(NameError::TooLong(_))));
}

#[test]
fn patterns_mean_one_tool_or_a_name_space() {
    let name = ToolName::parse("fs.read_text").unwrap();
    assert!(ToolPattern::parse("fs.read_text").unwrap().matches(&name));
    assert!(ToolPattern::parse("fs.*").unwrap().matches(&name));
    assert!(!ToolPattern::parse("f.*").unwrap().matches(&name));
    assert!(!ToolPattern::parse("fs.read_text.*").unwrap().matches(&name));
    for bad in ["*", ".*", "fs*", "fs.*.x", "Fs.*"] {
        assert!(ToolPattern::parse(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn a_name_is_read_back_as_written(name in "[a-z][a-z0-9_]{0,8}(\\.[a-z][a-z0-9_]{0,8}){1,3}") {
        prop_assume!(!is_reserved(&name));
        prop_assert_eq!(ToolName::parse(&name).unwrap().to_string(), name);
    }

    #[test]
    fn any_text_is_answered_without_a_panic(text in "\\PC*") {
        if let Ok(name) = ToolName::parse(&text) {
            prop_assert!(name.as_str().contains('.'));
        }
        let _ = ToolPattern::parse(&text);
    }
}
