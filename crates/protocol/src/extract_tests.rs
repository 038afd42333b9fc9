use proptest::prelude::*;
use serde_json::json;

use super::*;

fn whole(text: &str) -> Extracted {
    let mut extractor = Extractor::default();
    extractor.feed(text);
    extractor.finish().1
}

/// All pieces of an answer that arrives in these chunks, text joined, and what it consists of.
fn streamed<'a>(chunks: impl IntoIterator<Item = &'a str>) -> (String, Extracted) {
    let mut extractor = Extractor::default();
    let mut seen = String::new();
    let mut add = |pieces: Vec<Piece>| {
        for piece in pieces {
            match piece {
                Piece::Text(text) => seen.push_str(&text),
                Piece::Retract => seen.clear(),
                Piece::Reasoning(_) => {}
            }
        }
    };
    for chunk in chunks {
        add(extractor.feed(chunk));
    }
    let (pieces, extracted) = extractor.finish();
    add(pieces);
    (seen, extracted)
}

fn kinds(extracted: &Extracted) -> Vec<WarningKind> {
    extracted.warnings.iter().map(|(kind, _)| *kind).collect()
}

fn calls(payload: serde_json::Value) -> Segment {
    Segment::Json { kind: BlockKind::ToolCalls, payload }
}

#[test]
fn blocks_are_taken_out_of_the_text() {
    let found = whole(
        "Hello.\n<<<NOTES_JSON>>>\n{\"set_goals\": [\"x\"]}\n<<<END_NOTES_JSON>>>\nWorld\n<<<TOOL_CALLS_JSON>>>[]<<<END_TOOL_CALLS_JSON>>>",
    );
    assert_eq!(
        found.segments,
        [
            Segment::Text("Hello.\n".into()),
            Segment::Json { kind: BlockKind::Notes, payload: json!({"set_goals": ["x"]}) },
            Segment::Text("World\n".into()),
            calls(json!([])),
        ]
    );
    assert_eq!(found.visible(), "Hello.\nWorld\n");
    assert!(found.warnings.is_empty());
}

#[test]
fn a_mark_that_arrives_split_is_never_shown() {
    let text = "a<<<TOOL_CALLS_JSON>>>[{\"id\":\"1\"}]<<<END_TOOL_CALLS_JSON>>>b";
    let chars: Vec<String> = text.chars().map(String::from).collect();
    let mut extractor = Extractor::default();
    let mut seen = Vec::new();
    for c in &chars {
        seen.extend(extractor.feed(c));
    }
    let (last, found) = extractor.finish();
    seen.extend(last);
    assert_eq!(seen, [Piece::Text("a".into()), Piece::Text("b".into())]);
    assert_eq!(found.segments.get(1), Some(&calls(json!([{"id": "1"}]))));
}

#[test]
fn what_only_begins_like_a_mark_is_text() {
    for text in ["a << b", "<<<NOTES_JSO>>>", "1 < 2 <<< 3", "<thin", "<"] {
        let (seen, found) = streamed(text.split_inclusive(|_| true));
        assert_eq!(seen, text);
        assert_eq!(found.visible(), text);
    }
}

#[test]
fn marks_inside_strings_belong_to_the_string() {
    let payload = json!({"set_goals": ["say <<<END_NOTES_JSON>>> \" and <<<TOOL_CALLS_JSON>>>"]});
    let text = format!("<<<NOTES_JSON>>>{payload}<<<END_NOTES_JSON>>>tail");
    let found = whole(&text);
    assert_eq!(
        found.segments,
        [Segment::Json { kind: BlockKind::Notes, payload }, Segment::Text("tail".into())]
    );
}

#[test]
fn a_block_with_an_open_string_ends_at_its_mark_all_the_same() {
    let found = whole("<<<NOTES_JSON>>>{\"set_goals: []}<<<END_NOTES_JSON>>>tail");
    assert_eq!(kinds(&found), [WarningKind::Malformed]);
    assert_eq!(found.visible(), "tail");
}

#[test]
fn malformed_nested_unterminated_and_stray_are_warnings_and_show_nothing() {
    let nested = whole(
        "a<<<NOTES_JSON>>>{<<<TOOL_CALLS_JSON>>>[]<<<END_TOOL_CALLS_JSON>>>}<<<END_NOTES_JSON>>>b",
    );
    assert_eq!((nested.visible().as_str(), kinds(&nested)), ("ab", vec![WarningKind::Malformed]));
    assert!(!nested.segments.iter().any(|s| matches!(s, Segment::Json { .. })));

    let open = whole("a<<<TOOL_CALLS_JSON>>>[{\"id\":\"1\",\"tool\":\"shell.exec\",\"args\":{}}]");
    assert_eq!((open.visible().as_str(), kinds(&open)), ("a", vec![WarningKind::Unterminated]));

    let stray = whole("a<<<END_NOTES_JSON>>>b");
    assert_eq!((stray.visible().as_str(), kinds(&stray)), ("ab", vec![WarningKind::StrayMark]));
}

#[test]
fn reasoning_is_not_shown_and_nothing_in_it_counts() {
    let text = "<think>I will <<<TOOL_CALLS_JSON>>>[]<<<END_TOOL_CALLS_JSON>>> do <think>it</think> now</think>Done.";
    let (seen, found) = streamed(text.split_inclusive(' '));
    assert_eq!(seen, "Done.");
    assert!(found.segments.iter().all(|s| !matches!(s, Segment::Json { .. })));
    assert_eq!(found.spoken(), "Done.");

    let (seen, found) = streamed(["<thinking>no end <<<NOTES_JSON>>>{}<<<END_NOTES_JSON>>>"]);
    assert_eq!((seen.as_str(), kinds(&found)), ("", vec![WarningKind::UnterminatedReasoning]));
}

#[test]
fn reasoning_whose_beginning_was_left_out_is_taken_back() {
    let text = "I should call <<<TOOL_CALLS_JSON>>>[]<<<END_TOOL_CALLS_JSON>>></think>The answer.";
    let (seen, found) = streamed([text]);
    assert_eq!(seen, "The answer.");
    assert_eq!(found.visible(), "The answer.");
    assert!(found.segments.iter().all(|s| !matches!(s, Segment::Json { .. })));
    assert_eq!(kinds(&found), [WarningKind::StrayReasoning]);
}

#[test]
fn what_is_too_much_is_cut_and_told() {
    let long = format!("<<<NOTES_JSON>>>[\"{}\"]<<<END_NOTES_JSON>>>x", "y".repeat(LONGEST_BLOCK));
    let found = whole(&long);
    assert_eq!((found.visible().as_str(), kinds(&found)), ("x", vec![WarningKind::TooLong]));

    let many = "<<<NOTES_JSON>>>{}<<<END_NOTES_JSON>>>".repeat(5000) + "end";
    let found = whole(&many);
    assert_eq!(found.segments.len(), MOST_BLOCKS + 1);
    assert_eq!(kinds(&found), [WarningKind::TooMany]);

    let mut extractor = Extractor::default();
    for _ in 0..50 {
        extractor.feed(&"z".repeat(1024 * 1024));
    }
    let (_, found) = extractor.finish();
    assert_eq!(found.visible().len(), LONGEST_ANSWER);
    assert_eq!(kinds(&found), [WarningKind::AnswerTooLong]);
}

#[test]
fn hostile_answers_are_read_in_linear_time() {
    // Every one of these blocks seems to swallow all that comes behind it.
    let hostile = "<<<NOTES_JSON>>>\"<<<END_NOTES_JSON>>>".repeat(10_000);
    let found = whole(&hostile);
    assert!(found.segments.len() <= MOST_BLOCKS + 1);
    whole(&"<".repeat(300_000));
    whole(&"<<<NOTES_JSON>>".repeat(20_000));
    whole(&"<think>".repeat(50_000));
    let found = whole(&"<think></think>\n".repeat(50_000));
    assert!(found.segments.len() <= MOST_PARTS + 1 && found.warnings.len() <= MOST_PARTS);
    assert!(found.warnings.contains(&(WarningKind::AnswerTooLong, None)));
}

#[test]
fn what_is_left_does_not_make_a_mark() {
    for text in [
        "<<<NOTES_<<<END_NOTES_JSON>>>JSON>>>",
        "<<<TOOL_<think>x</think>CALLS_JSON>>>[]<<<END_TOOL_CALLS_JSON>>>",
        "<<<<NOTES_JSON>>>{}<<<END_NOTES_JSON>>><<NOTES_JSON>>>",
    ] {
        let (seen, found) = streamed(text.split_inclusive(|_| true));
        for kind in [BlockKind::Notes, BlockKind::ToolCalls] {
            assert!(!seen.contains(kind.begin()) && !seen.contains(kind.end()), "{seen}");
        }
        let kept = found.redacted();
        assert_eq!(whole(&rebuild(&kept.segments)).segments, kept.segments);
    }
}

#[test]
fn what_was_cut_is_not_cut_again_when_it_is_read_again() {
    for long in [
        format!("<<<NOTES_JSON>>>{}<<<END_NOTES_JSON>>>", "<pw=a `".repeat(2000)),
        format!("<<<NOTES_JSON>>>{}<<<END_NOTES_JSON>>>", "< ".repeat(20_000)),
        format!("<think>{}</think>", "<think></think>password=a ".repeat(20_000)),
    ] {
        let kept = whole(&long).redacted();
        assert_eq!(whole(&rebuild(&kept.segments)).segments, kept.segments);
    }
}

#[test]
fn a_fence_around_the_json_is_borne() {
    let found = whole("<<<TOOL_CALLS_JSON>>>\n```json\n[]\n```\n<<<END_TOOL_CALLS_JSON>>>");
    assert_eq!(found.segments, [calls(json!([]))]);
}

/// Answers made of everything that matters to the extractor.
fn answers() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("<<<NOTES_JSON>>>".to_owned()),
        Just("<<<END_NOTES_JSON>>>".to_owned()),
        Just("<<<TOOL_CALLS_JSON>>>".to_owned()),
        Just("<<<END_TOOL_CALLS_JSON>>>".to_owned()),
        Just("<think>".to_owned()),
        Just("</think>".to_owned()),
        Just("<reasoning>".to_owned()),
        Just("</reasoning>".to_owned()),
        Just("\"".to_owned()),
        Just("\\".to_owned()),
        Just("\n".to_owned()),
        Just("<".to_owned()),
        Just("{\"set_goals\": [\"a\"]}".to_owned()),
        Just("[{\"id\":\"1\",\"tool\":\"a.b\",\"args\":{\"password\":\"hunter2\"}}]".to_owned()),
        Just("password=hunter2 ".to_owned()),
        "[a-z<>{}\\[\\]\", ä]{0,8}",
    ];
    prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_chunking_gives_the_same(text in answers(), cuts in prop::collection::vec(0usize..400, 0..12)) {
        let mut cuts: Vec<usize> =
            cuts.into_iter().filter(|cut| text.is_char_boundary(*cut) && *cut <= text.len()).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&str> = cuts.windows(2).map(|pair| text.get(pair[0]..pair[1]).unwrap()).collect();
        let (seen, found) = streamed(chunks);
        let (all, expected) = streamed([text.as_str()]);
        prop_assert_eq!(&seen, &all);
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(&found.visible(), &seen);
        for mark in [BlockKind::Notes, BlockKind::ToolCalls] {
            prop_assert!(!seen.contains(mark.begin()) && !seen.contains(mark.end()));
        }
    }

    #[test]
    fn what_is_kept_can_be_read_again_as_the_same(text in answers()) {
        let kept = whole(&text).redacted();
        let again = whole(&rebuild(&kept.segments));
        prop_assert_eq!(&again.segments, &kept.segments);
        prop_assert_eq!(&again.redacted().segments, &kept.segments);
    }
}

#[test]
fn a_mark_that_broke_off_is_not_shown() {
    for (text, seen) in [
        ("Fine.<<<TOOL_", "Fine."),
        ("Fine.<<<NOTES_JSON>>", "Fine."),
        ("cat <<<", "cat <<<"),
        ("cat <<<EOF", "cat <<<EOF"),
    ] {
        let mut extractor = Extractor::default();
        let mut shown = String::new();
        let mut pieces = extractor.feed(text);
        let (rest, extracted) = extractor.finish();
        pieces.extend(rest);
        for piece in pieces {
            if let Piece::Text(text) = piece {
                shown.push_str(&text);
            }
        }
        assert_eq!((shown.as_str(), extracted.visible().as_str()), (seen, seen));
        assert_eq!(extracted.warnings.is_empty(), seen == text, "{text}");
    }
}
