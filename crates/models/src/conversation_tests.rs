use super::*;

fn call(id: &str) -> NativeCall {
    NativeCall { id: id.to_owned(), name: "a.b".to_owned(), arguments: "{}".to_owned() }
}

fn calls(ids: &[&str]) -> Message {
    Message {
        tool_calls: ids.iter().map(|id| call(id)).collect(),
        ..Message::new(Role::Assistant, "look")
    }
}

fn result(id: Option<&str>, content: &str) -> Message {
    Message { tool_call_id: id.map(str::to_owned), ..Message::new(Role::Tool, content) }
}

fn user(text: &str) -> Turn {
    Turn::User(text.to_owned())
}

#[test]
fn a_call_and_its_answer_are_native() {
    let messages = [Message::new(Role::User, "hi"), calls(&["x"]), result(Some("x"), "42")];
    let expected = [
        user("hi"),
        Turn::Assistant("look".to_owned(), vec![call("x")]),
        Turn::Result("x".to_owned(), "42".to_owned()),
    ];
    assert_eq!(turns(&messages, true), expected);
}

#[test]
fn without_native_calls_a_result_is_what_the_user_says() {
    let messages = [calls(&["x"]), result(Some("x"), "42")];
    let expected = [Turn::Assistant("look".to_owned(), vec![]), user("TOOL RESULT\n42")];
    assert_eq!(turns(&messages, false), expected);
}

#[test]
fn a_result_of_the_text_protocol_is_what_the_user_says() {
    let messages = [Message::new(Role::Assistant, "TOOL_CALLS"), result(None, "42")];
    let expected = [Turn::Assistant("TOOL_CALLS".to_owned(), vec![]), user("TOOL RESULT\n42")];
    assert_eq!(turns(&messages, true), expected);
}

#[test]
fn calls_without_an_answer_are_left_out_and_answers_count_once() {
    let messages = [
        calls(&["x", "y", "y"]),
        result(Some("z"), "nobody asked"),
        result(Some("y"), "1"),
        result(Some("y"), "2"),
        Message::new(Role::User, "go on"),
        result(Some("x"), "too late"),
    ];
    let expected = [
        Turn::Assistant("look".to_owned(), vec![call("y")]),
        Turn::Result("y".to_owned(), "1".to_owned()),
        user("TOOL RESULT\nnobody asked"),
        user("TOOL RESULT\n2"),
        user("go on"),
        user("TOOL RESULT\ntoo late"),
    ];
    assert_eq!(turns(&messages, true), expected);
}

#[test]
fn arguments_are_always_an_object() {
    let written = |text: &str| arguments(&NativeCall { arguments: text.to_owned(), ..call("x") });
    assert_eq!(written(r#"{"a": 1}"#), json!({"a": 1}));
    assert_eq!(written(" "), json!({}));
    assert_eq!(written("{\"a\": "), json!({"invalid_json": "{\"a\": "}));
    assert_eq!(written("[1]"), json!({"invalid_json": "[1]"}));
}
