//! Whatever a server says, reading it ends with an answer or an error.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{anthropic::Anthropic, collect::Collector, openai::OpenAi, sse::Events};

fn decoders() -> [Box<dyn Decoder>; 2] {
    let (names, hide) = (Names::default, Hide::default);
    [OpenAi::default().decoder(names(), hide()), Anthropic.decoder(names(), hide())]
}

/// Words that mean something to a decoder, so that what is made of them gets far.
const WORDS: &str = "\
    choices delta message content tool_calls function name arguments id index usage \
    prompt_tokens completion_tokens error type text message_start content_block_start \
    content_block_delta message_delta content_block tool_use input input_json_delta \
    partial_json stop_reason text_delta finish_reason input_tokens output_tokens thinking code";

fn word() -> impl Strategy<Value = Value> {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    prop_oneof![
        proptest::sample::select(words).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0_u64..3).prop_map(Value::from),
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    word().prop_recursive(5, 64, 4, |inner| {
        let key = word().prop_map(|word| word.as_str().unwrap_or("choices").to_owned());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_is_read_to_the_end(values in prop::collection::vec(value(), 1..6)) {
        for mut decoder in decoders() {
            let mut collector = Collector::default();
            for value in &values {
                // Also where it matters most: within a choice, and as a whole.
                for value in [value.clone(), json!({"choices": [{"delta": value}]})] {
                    let mut out = Vec::new();
                    let event = Event { event: String::new(), data: value.to_string() };
                    _ = decoder.event(&event, &mut out);
                    _ = decoder.whole(&value, &mut out);
                    for delta in out {
                        _ = collector.push(&delta);
                    }
                }
            }
            let response = collector.finish();
            prop_assert!(response.tool_calls.len() <= crate::MOST_CALLS);
        }
    }

    #[test]
    fn any_bytes_are_read_to_the_end(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        for mut decoder in decoders() {
            let (mut events, mut whole, mut out) = (Events::default(), Vec::new(), Vec::new());
            prop_assert!(events.push(&bytes, &mut whole).is_ok());
            whole.extend(events.finish());
            for event in whole {
                _ = decoder.event(&event, &mut out);
            }
        }
        _ = refusal::refused(500, &[], &bytes, &Hide::default()).to_string();
    }
}

#[test]
fn a_count_is_a_whole_number_within_reason() {
    let count = |value: Value| count_of(Some(&value));
    assert_eq!(count(json!(0)), Some(0));
    assert_eq!(count(json!(12.0)), Some(12));
    assert_eq!(count(json!(100_000_000)), Some(100_000_000));
    for nonsense in
        [json!(-1), json!(1.5), json!(100_000_001), json!(1e300), json!("3"), json!(null)]
    {
        assert_eq!(count(nonsense.clone()), None, "{nonsense}");
    }
}

#[test]
fn what_must_not_be_repeated_is_not() {
    let hide = Hide::new(Arc::new(Secret::new("hunter22".to_owned())));
    assert_eq!(hide.clean("it is hunter22, yes").as_str(), "it is [redacted:field], yes");
    let nothing = Hide::new(Arc::new(Secret::new(String::new())));
    assert_eq!(nothing.clean("as it is").as_str(), "as it is");
}

#[test]
fn a_name_of_a_model_is_short_and_plain() {
    assert_eq!(model_name("a\n\u{1b}[31mb\u{202e}"), "a[31mb");
    assert_eq!(model_name(&"x".repeat(1_000)).len(), 200);
}
