use serde_json::json;

use super::*;

#[test]
fn the_declaration_keeps_every_rule() {
    let declared = exec_declaration().unwrap();
    let tool = declared.tool();
    assert_eq!((tool.side_effect, tool.cost_effect), (SideEffect::Runtime, CostEffect::None));
    assert!(!tool.access.anonymous_allowed && tool.auth_required);
}

#[test]
fn the_input_is_closed_and_bounded() {
    let declared = exec_declaration().unwrap();
    let schema = declared.tool().input_schema.as_ref().unwrap();
    let schema = tollgate_contract::schema::Schema::compile(schema).unwrap();
    assert_eq!(schema.problems(&json!({"cmd": "ls"})), []);
    assert_eq!(schema.problems(&json!({"cmd": "ls", "timeout_s": 600})), []);
    for bad in [
        json!({}),
        json!({"cmd": ""}),
        json!({"cmd": "ls", "timeout_s": 0}),
        json!({"cmd": "ls", "timeout_s": 601}),
        json!({"cmd": "ls", "x": 1}),
    ] {
        assert_ne!(schema.problems(&bad), [], "{bad}");
    }
    let input: ExecInput = serde_json::from_value(json!({"cmd": "ls"})).unwrap();
    assert_eq!(input.timeout_s, 20);
}

#[test]
fn a_refusal_points_at_the_command_and_says_what_to_do() {
    let error = Error::from(ShellError::from(words::split("ls | wc").unwrap_err()));
    assert_eq!(error.code().to_string(), "INVALID_INPUT");
    assert!(error.to_string().contains("/cmd"), "{error}");
    assert!(error.to_string().contains("quote it"), "{error}");
}
