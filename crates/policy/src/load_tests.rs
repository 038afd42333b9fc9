use super::*;

fn refused(text: &str, format: Format) -> String {
    PolicySet::parse(text, format).unwrap_err().to_string()
}

#[test]
fn a_set_is_read_from_json_and_toml_alike() {
    let json = r#"{"server": {"deny": ["shell"]}, "policies": {"a": {"maxSideEffect": "user_write", "ask": [{"tool": "fs.*"}]}}}"#;
    let toml = "[server]\ndeny = [\"shell\"]\n[policies.a]\nmaxSideEffect = \"user_write\"\nask = [{ tool = \"fs.*\" }]\n";
    let (from_json, from_toml) = (
        PolicySet::parse(json, Format::Json).unwrap(),
        PolicySet::parse(toml, Format::Toml).unwrap(),
    );
    assert_eq!(from_json, from_toml);
    assert!(
        from_json.named("a").is_some()
            && from_json.named("readonly").is_some()
            && from_json.named("b").is_none()
    );
}

#[test]
fn the_fields_of_one_policy_are_what_a_key_carries() {
    let set = PolicySet::parse("maxSideEffect = \"none\"", Format::Toml).unwrap();
    assert_eq!(set.server, Policy::default());
    assert_eq!(
        set.named("key").unwrap().max_side_effect,
        Some(tollgate_contract::SideEffect::None)
    );
}

#[test]
fn a_set_is_written_as_it_was_read() {
    let set =
        PolicySet::parse(include_str!("../../../examples/policy.toml"), Format::Toml).unwrap();
    let written = serde_json::to_string(&set).unwrap();
    assert_eq!(PolicySet::parse(&written, Format::Json).unwrap(), set);
}

#[test]
fn the_words_of_a_file_that_does_not_load() {
    let mut words = String::new();
    for (text, format) in [
        ("[server]\nmaxSideEffct = \"none\"", Format::Toml),
        ("[server]\nmaxSideEffect = \"user_wrte\"", Format::Toml),
        ("[server]\ndeny = [\"shel\"]", Format::Toml),
        ("[server]\ndeny = [\"fs.write_text*\"]", Format::Toml),
        ("[server]\ndeny = [\"tool:get_world_state\"]", Format::Toml),
        ("[policies.a.trade]\nmaxQuantity = -1", Format::Toml),
        ("[policies.readonly]\n", Format::Toml),
        ("[server\n", Format::Toml),
        ("[sever]\n", Format::Toml),
        ("{\"deny\": [\"write\"], \"deny\": []}", Format::Json),
        ("{\n  \"server\": {\"ask\": [{\"reason\": \"x\"}]}\n}", Format::Json),
        (
            "{\n  \"server\": {\"ask\": [{\"input\": {\"pointer\": \"quantity\", \"above\": 1}}]}\n}",
            Format::Json,
        ),
        (
            "{\"policies\": {\"a\": {\"ask\": [{\"input\": {\"pointer\": \"/q\", \"abov\": 1}}]}}}",
            Format::Json,
        ),
        ("{\"maxCostEffect\": 5}", Format::Json),
        ("[]", Format::Json),
        ("{\"server\": []}", Format::Json),
        ("{\"policies\": {\"a\": {\"trade\": []}}}", Format::Json),
        ("{\"ask\": [[\"fs.*\"]]}", Format::Json),
        ("{\"allow\": null}", Format::Json),
        ("", Format::Toml),
        (" \n", Format::Json),
        ("[[ask]]\ninput = { pointer = \"/n\", above = nan }", Format::Toml),
        ("[[ask]]\ninput = { pointer = \"/n\", equals = inf }", Format::Toml),
        ("[[ask]]\ninput = { pointer = \"/n\", equals = 2024-01-01 }", Format::Toml),
        ("[[ask]]\ninput = { pointer = \"/n\", oneOf = [] }", Format::Toml),
        ("[trade]\nconfirmToken = 8675309", Format::Toml),
        ("[trade]\nblockedJurisdictions = [\"USA\"]", Format::Toml),
        ("{\"server\": null}", Format::Json),
        ("{\"policies\": {\"a\": {\"trade\": {\"maxQuantity\": null}}}}", Format::Json),
        ("{", Format::Json),
    ] {
        words.push_str(&format!("{text:?}\n  {}\n", refused(text, format)));
    }
    insta::assert_snapshot!(words);
}

#[test]
fn a_secret_in_a_file_is_not_repeated() {
    let text = format!("[server]\ndeny = [\"tg_key_{}\"]", "c".repeat(40));
    assert!(!refused(&text, Format::Toml).contains("cccc"));
    assert!(!refused("[trade]\nconfirmToken = 8675309", Format::Toml).contains("8675309"));
}
