use proptest::prelude::*;

use super::*;

fn terms(text: &str) -> Vec<(String, Kind)> {
    let mut found = Vec::new();
    each(text, |term| found.push((term.text.to_owned(), term.kind)));
    found
}

fn texts(text: &str) -> Vec<String> {
    terms(text).into_iter().map(|(term, _)| term).collect()
}

#[test]
fn words_are_folded_and_reduced_to_their_stem() {
    assert_eq!(texts("Deployments, DEPLOYED; deploying!"), ["deploy", "deploy", "deploy"]);
    assert_eq!(texts("Café CAFÉ cafe\u{301} ｃａｆｅ"), ["cafe", "cafe", "cafe", "cafe"]);
    assert_eq!(texts("Ελλάδα ελλαδα"), ["ελλαδα", "ελλαδα"]);
    assert_eq!(texts("Ёлка елка"), ["елка", "елка"]);
    // What is not English letters alone stays as it is.
    assert_eq!(texts("v2 utf8 straße"), ["v2", "utf8", "straße"]);
    assert_eq!(texts("snake_case a.b(c) 3.14"), ["snake", "case", "a", "b", "c", "3", "14"]);
}

#[test]
fn an_accent_is_not_kept_apart_by_how_it_is_written() {
    assert_eq!(texts("İstanbul"), texts("istanbul"));
    assert_eq!(texts("Việt"), ["viet"]);
    // Marks of other scripts are letters: these are different words.
    assert_ne!(texts("कि"), texts("का"));
    assert_eq!(texts("हिन्दी").len(), 1, "a virama does not end a word");
}

#[test]
fn scripts_without_spaces_give_characters_and_pairs() {
    use Kind::{Alone, Character, Pair, Word};
    let found: Vec<_> = terms("東京都 x 猫");
    let found: Vec<_> = found.iter().map(|(term, kind)| (term.as_str(), *kind)).collect();
    let expected = [
        ("東", Character),
        ("東京", Pair),
        ("京", Character),
        ("京都", Pair),
        ("都", Character),
        ("x", Word),
        ("猫", Alone),
    ];
    assert_eq!(found, expected);
    assert_eq!(texts("ｶﾞｲﾄﾞ"), texts("ガイド"), "half width is the same");
    assert_eq!(texts("か\u{3099}"), texts("が"), "in two parts is the same");
    assert_ne!(texts("か"), texts("が"));
    assert!(texts("iPhone手机").contains(&"iphon".to_owned()));
}

#[test]
fn places_are_those_of_the_text() {
    let text = "— Zürich: 東京";
    let mut found = Vec::new();
    each(text, |term| {
        let there: String = text.chars().skip(term.at).take(term.long).collect();
        found.push((term.text.to_owned(), there));
    });
    let expected = [("zurich", "Zürich"), ("東", "東"), ("東京", "東京"), ("京", "京")];
    assert_eq!(found, expected.map(|(term, there)| (term.to_owned(), there.to_owned())));
}

#[test]
fn stop_words_are_known_and_sorted() {
    assert!(STOP.is_sorted());
    assert_eq!(terms("The")[0].1, Kind::Stop);
    assert_eq!(terms("don't").iter().filter(|(_, kind)| *kind == Kind::Stop).count(), 2);
    assert_eq!(terms("thesis")[0].1, Kind::Word);
}

#[test]
fn long_words_are_cut() {
    let long = "z".repeat(5_000);
    assert_eq!(texts(&long), ["z".repeat(LONGEST)]);
    assert!(texts(&"é".repeat(500)).iter().all(|term| term.len() <= LONGEST));
}

proptest! {
    #[test]
    fn every_text_has_terms_that_can_be_indexed(text in "\\PC{0,200}|[a-zA-Z\u{300}-\u{36f}\u{3040}-\u{30ff}\u{ac00}-\u{d7a3} .'\"*:^()-]{0,200}") {
        let length = text.chars().count();
        each(&text, |term| {
            assert!(!term.text.is_empty() && term.text.len() <= LONGEST);
            // No separator, quote or operator of the index's language is ever in a term.
            assert!(term.text.chars().all(|c| c.is_alphanumeric() || is_mark(c)), "{:?}", term.text);
            assert!(!term.text.bytes().any(|b| b.is_ascii_uppercase()));
            assert!(term.at < length);
        });
    }

    #[test]
    fn a_text_has_the_terms_of_its_words(words in proptest::collection::vec("[a-zA-Zäöü0-9]{1,12}", 0..20)) {
        let apart: Vec<String> = words.iter().flat_map(|word| texts(word)).collect();
        prop_assert_eq!(texts(&words.join(" ")), apart);
    }
}
