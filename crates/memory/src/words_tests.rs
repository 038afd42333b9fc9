use super::*;

#[test]
fn a_question_is_its_telling_words() {
    assert_eq!(asked("What is the status of the Deployments?"), ["status", "deploy"]);
    assert_eq!(asked("deploy deployed DEPLOYING"), ["deploy"]);
    // Words that say little are all there is.
    assert_eq!(asked("What is it?"), ["what", "is", "it"]);
    assert_eq!(asked(" \n\u{0}?!"), [""; 0]);
    assert_eq!(asked("東京都へ"), ["東京", "京都", "都へ"]);
    assert_eq!(asked("a 猫 b"), ["猫", "b"]);
}

#[test]
fn nothing_in_a_question_is_syntax() {
    let hostile = r#""" AND OR NOT NEAR(a b, 2) ^x y* {text}: col:z -q + \ ' ; --"#;
    let expected = ["near", "b", "2", "x", "y", "text", "col", "z", "q"];
    assert_eq!(asked(hostile), expected);
}

#[test]
fn how_much_of_a_question_is_read_is_bounded() {
    let long: String = (0..1_000_000).map(|number| format!("w{number} ")).collect();
    assert_eq!(asked(&long).len(), MOST_LOOKED_UP);
    let one = "x".repeat(10_000_000);
    assert_eq!(asked(&one), ["x".repeat(64)]);
    assert_eq!(asked(&"猫".repeat(5_000_000)), ["猫猫"]);
}

#[test]
fn a_rarer_word_weighs_more_and_a_count_less_and_less() {
    assert!(weight(1.0, 1_000.0) > weight(10.0, 1_000.0));
    assert!(weight(1_000.0, 1_000.0) > 0.0);
    assert!(weight(2_000.0, 1_000.0) > 0.0);
    let gains: Vec<f64> = [1.0, 2.0, 4.0].map(|times| saturated(times, 1.0)).to_vec();
    assert!((gains[0] - 1.0).abs() < 1e-12);
    assert!(gains[1] - gains[0] > gains[2] - gains[1]);
    assert!(saturated(1e9, 1e-9) <= K1 + 1.0);
    assert!(saturated(1.0, 2.0) < saturated(1.0, 1.0));
}
