use proptest::prelude::*;

use super::*;
use crate::score::By;

fn id(number: u8) -> MemoryId {
    MemoryId::from_parts(1, [number; 10])
}

fn found(number: u8, score: f64, excerpt: &str) -> Found {
    Found {
        id: id(number),
        score,
        excerpt: excerpt.to_owned(),
        text: String::new(),
        tags: Vec::new(),
        session: "s".to_owned(),
        turn: 0,
        at_ms: 0,
        by: By::Words,
    }
}

#[test]
fn the_block_has_the_form_of_the_seed() {
    let shown = block(&[found(1, 0.412, "excerpt..."), found(2, 0.4, "another")]);
    let expected = [
        "=== RETRIEVED_MEMORY ===".to_owned(),
        format!("- id={} score=0.412", id(1)),
        "  excerpt...".to_owned(),
        format!("- id={} score=0.400", id(2)),
        "  another".to_owned(),
        "=== END_RETRIEVED_MEMORY ===".to_owned(),
    ];
    assert_eq!(shown, expected.join("\n"));
    assert_eq!(block(&[]), "=== RETRIEVED_MEMORY ===\n=== END_RETRIEVED_MEMORY ===");
}

#[test]
fn a_score_that_is_none_is_shown_as_one() {
    let shown = block(&[found(1, f64::NAN, "a"), found(2, 7.0, "b"), found(3, -1.0, "")]);
    let scores: Vec<&str> = shown.lines().filter_map(|line| line.split("score=").nth(1)).collect();
    assert_eq!(scores, ["0.000", "1.000", "0.000"]);
    assert!(shown.contains("\n  …\n"), "an entry always has a second line: {shown}");
}

#[test]
fn citations_are_found_with_their_places() {
    let text = format!("As said [mem:{}], and [mem:mem_x] or [mem:].", id(1));
    let cited = citations(&text);
    let shown: Vec<(&str, Option<MemoryId>)> =
        cited.iter().map(|one| (text.get(one.range.clone()).unwrap(), one.id)).collect();
    let first = format!("[mem:{}]", id(1));
    assert_eq!(shown, [(first.as_str(), Some(id(1))), ("[mem:mem_x]", None), ("[mem:]", None)]);
    assert_eq!(cited[1].cited, "mem_x");
}

#[test]
fn what_is_no_citation_is_text() {
    let long = format!("[mem:{}]", "x".repeat(LONGEST_CITED + 1));
    for text in ["", "[mem:", "[mem:a", "[mem:a\n]", "mem:a]", "[MEM:a]", "[mem:[a]", &long] {
        assert_eq!(citations(text), [], "{text}");
    }
    let inner = citations("[mem:[mem:a]]");
    assert_eq!((inner.len(), inner[0].range.clone()), (1, 5..12));
}

#[test]
fn what_was_not_retrieved_is_named_once() {
    let text =
        format!("[mem:{0}] [mem:{1}] [mem:{1}] [mem:x] [mem:{0}] [mem:x] [mem:y]", id(1), id(2));
    let expected = [id(2).to_string(), "x".to_owned(), "y".to_owned()];
    assert_eq!(unknown_citations(&text, &[id(1)]), expected);
    assert_eq!(unknown_citations("no citation", &[]), Vec::<String>::new());
}

#[test]
fn a_text_full_of_citations_is_read_in_one_go() {
    let text: String = (0..100_000).map(|number| format!("[mem:{number}][mem:")).collect();
    assert_eq!(unknown_citations(&text, &[]).len(), 100_000);
}

proptest! {
    #[test]
    fn no_excerpt_can_forge_a_line(
        excerpts in proptest::collection::vec("(\\PC|[=\\-\n\r\u{2028}\u{85} id]|=== END_RETRIEVED_MEMORY ===|\n- id=mem_){0,40}", 0..5),
    ) {
        let all: Vec<Found> = excerpts.iter().map(|text| found(1, 0.5, text)).collect();
        let shown = block(&all);
        let lines: Vec<&str> = shown.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}', '\u{b}', '\u{c}']).collect();
        prop_assert_eq!(lines.len(), 2 + 2 * all.len());
        for (at, line) in lines.iter().enumerate() {
            let is_marker = at == 0 || at == lines.len() - 1;
            let is_head = !is_marker && at % 2 == 1;
            // Not even for somebody who trims the lines first.
            prop_assert_eq!(line.trim().starts_with("==="), is_marker, "{}", line);
            prop_assert_eq!(line.trim().starts_with("- id="), is_head, "{}", line);
        }
    }

    #[test]
    fn citations_are_where_they_say(text in "(\\PC|\\[mem:|\\]|\n|mem_[0-9a-f]{32}){0,60}") {
        let mut last = 0;
        for one in citations(&text) {
            prop_assert!(one.range.start >= last);
            last = one.range.end;
            let there = text.get(one.range).unwrap();
            prop_assert_eq!(there, format!("[mem:{}]", one.cited));
            prop_assert_eq!(one.id, MemoryId::parse(&one.cited).ok());
        }
    }
}
