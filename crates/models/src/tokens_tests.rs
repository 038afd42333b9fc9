use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::chat::{Message, Role, ToolSpec};

const ALL: [Tokenizer; 3] = [Tokenizer::O200k, Tokenizer::Cl100k, Tokenizer::Estimate];

#[test]
fn models_are_counted_as_they_count() {
    for (name, tokenizer) in [
        ("gpt-4o-mini", Tokenizer::O200k),
        ("gpt-4.1", Tokenizer::O200k),
        ("gpt-5-nano", Tokenizer::O200k),
        ("openai/gpt-4o", Tokenizer::O200k),
        ("o3", Tokenizer::O200k),
        ("o1-preview", Tokenizer::O200k),
        ("gpt-4", Tokenizer::Cl100k),
        ("gpt-4-turbo", Tokenizer::Cl100k),
        ("gpt-3.5-turbo", Tokenizer::Cl100k),
        ("llama-3.1-8b", Tokenizer::Estimate),
        ("claude-sonnet-4", Tokenizer::Estimate),
        ("olmo", Tokenizer::Estimate),
        ("o1x", Tokenizer::Estimate),
        ("", Tokenizer::Estimate),
    ] {
        assert_eq!(Tokenizer::for_model(name), tokenizer, "{name}");
    }
}

/// In one test: where nothing is optimised, a tokenizer takes seconds to be made.
#[test]
fn known_texts_have_their_known_counts() {
    let text = "The quick brown fox jumps over the lazy dog.";
    assert_eq!(Tokenizer::O200k.count(text), 10);
    assert_eq!(Tokenizer::Cl100k.count(text), 10);
    // Words that look like commands of the tokenizer are words.
    assert!(Tokenizer::Cl100k.count("<|endoftext|>") > 1);
    for tokenizer in ALL {
        assert_eq!(tokenizer.count(""), 0);
    }
    the_estimate_is_on_the_high_side();
    requests_are_counted_with_what_stands_around();
}

fn the_estimate_is_on_the_high_side() {
    let texts = [
        "The quick brown fox jumps over the lazy dog, and nobody minds it at all.",
        "Das ist ein ganz gewöhnlicher Satz mit Umlauten: äöü und ß.",
        "fn main() { println!(\"{}\", (0..10).map(|x| x * x).sum::<u32>()); }",
        "{\"id\": 12345, \"name\": \"x\", \"list\": [1, 2, 3.5, null]}",
        "これは日本語の文章です。特に意味はありません。",
        "Это обычное предложение на русском языке.",
    ];
    for text in texts {
        let (high, real) = (Tokenizer::Estimate.count(text), Tokenizer::O200k.count(text));
        assert!(high >= real, "{text}: {high} < {real}");
        assert!(high <= real * 4, "{text}: {high} is far from {real}");
    }
}

fn requests_are_counted_with_what_stands_around() {
    let request = ChatRequest {
        messages: vec![Message::new(Role::User, "abc"), Message::new(Role::User, "abcdef")],
        tools: vec![ToolSpec {
            name: "abc".to_owned(),
            description: "abc".to_owned(),
            parameters: serde_json::json!({}),
        }],
        ..ChatRequest::default()
    };
    assert_eq!(Tokenizer::Estimate.count_request(&request), 5 + 5 + 1 + 5 + 2 + 10 + 1 + 1 + 2);
    let counts = Counts::default();
    let other = ChatRequest { messages: request.messages[..1].to_vec(), ..request.clone() };
    for _ in 0..2 {
        for tokenizer in ALL {
            for request in [&request, &other] {
                assert_eq!(counts.count(tokenizer, request), tokenizer.count_request(request));
            }
        }
    }
    for number in 0..200 {
        let messages = vec![Message::new(Role::User, "x ".repeat(number))];
        counts.count(Tokenizer::O200k, &ChatRequest { messages, ..ChatRequest::default() });
    }
    assert_eq!(counts.known.lock().unwrap().len(), REMEMBERED);
}

/// What takes a tokenizer time that grows with the square of the length, and characters of all kinds.
#[test]
fn long_runs_take_time_in_proportion() {
    let length = 60_000;
    let begun = Instant::now();
    for run in ["a", " ", "\n", "=", "語", "a1", "\u{200d}"] {
        let text = run.repeat(length / run.len());
        let count = Tokenizer::Cl100k.count(&text);
        assert!(count > 0 && count <= text.len() as u64, "{run:?}: {count}");
    }
    let words = "word ".repeat(100);
    let mut counter = Counter { left: 250, ..Counter::new(Tokenizer::Cl100k) };
    assert_eq!(counter.count(&words), 51 + 84, "only so much is counted exactly");
    assert_eq!((counter.left, counter.count("word ")), (0, 2));
    // Some seconds where nothing is optimised; many minutes if it were not bounded.
    assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", begun.elapsed());
}

proptest! {
    #[test]
    fn pieces_are_the_text(text in "\\PC{0,600}|[a ]{0,600}") {
        let cut: Vec<&str> = pieces(&text).collect();
        prop_assert_eq!(&cut.concat(), &text);
        prop_assert!(cut.iter().all(|piece| !piece.is_empty()));
    }

    #[test]
    fn any_text_can_be_counted(text in "\\PC{0,300}") {
        prop_assert!(Tokenizer::Cl100k.count(&text) <= text.len() as u64);
        prop_assert!(Tokenizer::Estimate.count(&text) <= text.len() as u64);
    }
}
