use std::process::Command;

use proptest::prelude::*;

use super::*;

fn words(command: &str) -> Vec<String> {
    split(command).unwrap()
}

#[test]
fn quotes_and_backslashes_mean_what_they_mean_to_a_shell() {
    assert_eq!(words("echo a  b\tc"), ["echo", "a", "b", "c"]);
    assert_eq!(words(r#"echo 'a  b' "c d"e\ f '' """#), ["echo", "a  b", "c de f", "", ""]);
    assert_eq!(words(r#"echo "\$x \a \" \\" '\n'"#), ["echo", r#"$x \a " \"#, r"\n"]);
    assert_eq!(words("python3 -c 'a\nb'"), ["python3", "-c", "a\nb"]);
    assert_eq!(words("echo a~ b#c ! x=y ]"), ["echo", "a~", "b#c", "!", "x=y", "]"]);
}

#[test]
fn whatever_a_shell_would_act_on_is_refused_by_name_and_place() {
    for (command, found, at) in [
        ("cat a|b", '|', 6),
        ("a & b", '&', 3),
        ("a; b", ';', 2),
        ("a < b", '<', 3),
        ("a > b", '>', 3),
        ("a (b)", '(', 3),
        ("a )b", ')', 3),
        ("echo $HOME", '$', 6),
        ("echo `id`", '`', 6),
        ("ls *", '*', 4),
        ("ls a?", '?', 5),
        ("ls [a]", '[', 4),
        ("ls {a,b}", '{', 4),
        ("ls }", '}', 4),
        ("ls ~/x", '~', 4),
        ("ls #x", '#', 4),
        ("ls\nid", '\n', 3),
        ("ls \\\nid", '\n', 5),
    ] {
        assert_eq!(split(command), Err(WordsError::Meta { found, at }), "{command:?}");
    }
    assert_eq!(split("echo \"$x\""), Err(WordsError::Expansion { found: '$', at: 7 }));
    assert_eq!(split("echo \"`x`\""), Err(WordsError::Expansion { found: '`', at: 7 }));
}

#[test]
fn what_cannot_be_seen_is_refused() {
    assert_eq!(split("ls \0"), Err(WordsError::Control { found: '\0', at: 4 }));
    assert_eq!(split("ls '\0'"), Err(WordsError::Control { found: '\0', at: 5 }));
    assert_eq!(split("ls \u{1b}[0m"), Err(WordsError::Control { found: '\u{1b}', at: 4 }));
    assert_eq!(split("ls\r"), Err(WordsError::Control { found: '\r', at: 3 }));
    assert_eq!(split("ls\u{a0}x"), Err(WordsError::Blank { found: '\u{a0}', at: 3 }));
    assert_eq!(split("ls\u{2028}x"), Err(WordsError::Blank { found: '\u{2028}', at: 3 }));
    assert_eq!(words("ls '\u{a0}'"), ["ls", "\u{a0}"]);
}

#[test]
fn what_is_not_a_command_is_refused() {
    assert_eq!(split(""), Err(WordsError::Empty));
    assert_eq!(split("  \t "), Err(WordsError::Empty));
    assert_eq!(split("'' x"), Err(WordsError::Empty));
    assert_eq!(split("ls 'x"), Err(WordsError::Unterminated { quote: '\'', at: 4 }));
    assert_eq!(split("ls \"x"), Err(WordsError::Unterminated { quote: '"', at: 4 }));
    assert_eq!(split("ls \\"), Err(WordsError::Dangling));
    assert_eq!(split("A=b ls"), Err(WordsError::Assignment));
    assert_eq!(split(&"x".repeat(LONGEST + 1)), Err(WordsError::TooLong));
}

/// Writes a word so that it is read as itself.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// What a real shell makes of the same text.
fn by_shell(command: &str) -> Vec<String> {
    let script = format!("printf '%s\\0' {command}");
    let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

proptest! {
    #[test]
    fn no_text_makes_it_fall_over(text in any::<String>()) {
        let _ = split(&text);
    }

    #[test]
    fn words_that_are_quoted_come_back(all in prop::collection::vec("[^\\p{Cc}]{1,12}", 1..6)) {
        let command: Vec<String> = all.iter().map(|word| quoted(word)).collect();
        prop_assert_eq!(split(&command.join(" ")), Ok(all));
    }

    #[test]
    fn a_real_shell_agrees_with_what_is_accepted(text in r#"x( |[a-z'"\\ $=!~#%^.,:@+-]){0,16}"#) {
        if let Ok(words) = split(&text) {
            prop_assert_eq!(by_shell(&text), words);
        }
    }
}
