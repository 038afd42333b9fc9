use super::*;

#[test]
fn a_record_has_the_terms_of_its_session() {
    let tags = ["Über uns".to_owned()];
    let told = indexed("Cat, cat and a dog; dog dog dog. 東京", &tags, 17);
    let mut terms: Vec<&str> = told.terms.split(' ').filter(|term| !term.is_empty()).collect();
    terms.sort_unstable();
    let tag = format!("{}17", tag_term("Über uns"));
    let mut expected =
        vec!["a.17", "and.17", "cat:17", "dog;17", "京.17", "東.17", "東京.17", tag.as_str()];
    expected.sort_unstable();
    assert_eq!(terms, expected);
    assert_eq!(told.words, 9, "single characters of a pair do not make a text longer");
}

#[test]
fn questions_are_quoted() {
    let tags = ["x\" OR \"y".to_owned()];
    let asked = question("cat", Often::AFew, &tags, Scope::Session(3));
    let (word, tag) = asked.split_once(" AND ").unwrap();
    assert_eq!(word, "\"cat:3\"");
    assert!(tag.starts_with("\"#") && tag.ends_with(".3\"") && tag.len() == 37, "{tag}");
    assert_eq!(question("cat", Often::Once, &[], Scope::All), "\"cat.\" *");
    assert_eq!(question("a\"b", Often::Many, &[], Scope::Session(1)), "\"a\"\"b;1\"");
    assert_eq!(tags_question(&[], Scope::All), None);
}

#[test]
fn a_place_keeps_the_order_and_about_the_length() {
    let mut last = 0;
    for words in 0..20_000 {
        let here = place(i64::from(words) + 1, words);
        assert!(here > last, "in the order of the numbers");
        last = here;
        assert_eq!(number(here), i64::from(words) + 1);
        let ratio = length(here) / f64::from(words.max(1));
        assert!(
            (words > 12_500) || (0.85..=1.17).contains(&ratio) || words < 5,
            "{words}: {ratio}"
        );
    }
    assert!(length(place(1, u32::MAX)) > 10_000.0);
}
