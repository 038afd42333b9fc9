use super::*;

#[test]
fn quoting_escapes_what_a_terminal_would_act_on() {
    assert_eq!(Quoted::new("a\x1b[31mb\nc\u{202e}").to_string(), "`a\\u{1b}[31mb\\nc\\u{202e}`");
}

#[test]
fn quoting_cuts_long_text() {
    let shown = Quoted::new(&"x".repeat(500));
    assert_eq!(shown.as_str().chars().count(), QUOTE_LIMIT + 1);
    assert!(shown.as_str().ends_with('…'));
}

#[test]
fn quoting_hides_a_key_pasted_where_a_name_belongs() {
    let key = format!("tg_key_{}", "a1".repeat(32));
    assert_eq!(Quoted::new(&key).as_str(), "[redacted:tollgate-key]");
    // Even where the cut would fall into the middle of it.
    let late = format!("{} {key}", "x".repeat(70));
    assert!(!Quoted::new(&late).as_str().contains("tg_key_"));
}

#[test]
fn nearest_names_what_was_meant_and_nothing_far_off() {
    let names = ["fs.read_text", "fs.write_text", "system.time"];
    assert_eq!(nearest("fs.read_txt", names), Some("fs.read_text"));
    assert_eq!(nearest("sytem.time", names), Some("system.time"));
    assert_eq!(nearest("completely.other", names), None);
}

#[test]
fn hex_writes_every_byte_with_two_digits() {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    for length in [0, 1, 31, 32, 33, 64, 256] {
        let bytes = all.get(256 - length..).unwrap();
        let expected: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex(bytes).to_string(), expected);
    }
}
