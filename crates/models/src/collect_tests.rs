use super::*;
use crate::chat::Usage;

fn call(index: usize, id: &str, name: &str, arguments: &str) -> Delta {
    let some = |word: &str| Some(word.to_owned()).filter(|word| !word.is_empty());
    Delta::Call { index, id: some(id), name: some(name), arguments: arguments.to_owned() }
}

fn collected(deltas: &[Delta]) -> ChatResponse {
    let mut collector = Collector::default();
    for delta in deltas {
        collector.push(delta).unwrap();
    }
    collector.finish()
}

#[test]
fn pieces_become_an_answer() {
    let usage = |output_tokens| Usage { input_tokens: 3, output_tokens, cached_tokens: 0 };
    let response = collected(&[
        Delta::Headers(vec![("a".to_owned(), "b".to_owned())]),
        Delta::Model("m".to_owned()),
        Delta::Reasoning("hm".to_owned()),
        Delta::Text("he".to_owned()),
        Delta::Usage(usage(1)),
        Delta::Text("llo".to_owned()),
        call(0, "c", "f", "{\"a\""),
        call(0, "c", "f", ":1}"),
        Delta::Usage(usage(9)),
        Delta::Finish("length".to_owned()),
    ]);
    let expected = ChatResponse {
        content: "hello".to_owned(),
        reasoning: "hm".to_owned(),
        tool_calls: vec![NativeCall {
            id: "c".to_owned(),
            name: "f".to_owned(),
            arguments: "{\"a\":1}".to_owned(),
        }],
        finish: Finish::Length,
        usage: Some(usage(9)),
        model: "m".to_owned(),
    };
    assert_eq!(response, expected);
}

#[test]
fn what_a_server_left_out_is_filled_in() {
    let response = collected(&[call(2, "", "f", " ")]);
    let expected =
        NativeCall { id: "call_0".to_owned(), name: "f".to_owned(), arguments: "{}".to_owned() };
    assert_eq!((response.tool_calls, response.finish), (vec![expected], Finish::ToolCalls));
    assert_eq!(collected(&[]).finish, Finish::Stop);
    let nameless = collected(&[call(0, "x", "", "{}")]);
    assert_eq!((nameless.tool_calls.len(), nameless.finish), (0, Finish::Stop));
}

#[test]
fn everything_is_bounded() {
    let refuses = |deltas: &[Delta]| {
        let mut collector = Collector::default();
        deltas.iter().any(|delta| matches!(collector.push(delta), Err(ModelError::TooLarge(_))))
    };
    assert!(refuses(&[call(MOST_CALLS, "x", "f", "")]));
    assert!(refuses(&[call(usize::MAX, "x", "f", "")]));
    assert!(!refuses(&[call(MOST_CALLS - 1, "x", "f", "")]));
    let large = "x".repeat(LARGEST_ARGUMENTS);
    assert!(!refuses(&[call(0, "x", "f", &large)]));
    assert!(refuses(&[call(0, "x", "f", &large), call(0, "", "", "y")]));
    let half = Delta::Text("x".repeat(LARGEST_TEXT / 2));
    let other = Delta::Reasoning("x".repeat(LARGEST_TEXT / 2));
    assert!(!refuses(&[half.clone(), other.clone()]));
    assert!(refuses(&[half, other, Delta::Text("y".to_owned())]));
}

#[test]
fn words_of_servers_mean_one_of_five_things() {
    for (word, finish) in [
        ("stop", Finish::Stop),
        ("end_turn", Finish::Stop),
        ("max_tokens", Finish::Length),
        ("function_call", Finish::ToolCalls),
        ("content_filter", Finish::Filtered),
        ("refusal", Finish::Filtered),
        ("pause_turn", Finish::Other),
    ] {
        assert_eq!(collected(&[Delta::Finish(word.to_owned())]).finish, finish, "{word}");
    }
}
