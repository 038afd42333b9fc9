use super::*;

fn found(command: &str) -> Option<String> {
    let list: Vec<String> = DEFAULT.iter().map(|word| (*word).to_owned()).collect();
    let arguments = crate::shell::words::split(command).unwrap();
    find(&list, &arguments).map(str::to_owned)
}

#[test]
fn a_denied_word_is_found_wherever_it_stands() {
    for (command, word) in [
        ("echo sudo", "sudo"),
        ("sudo ls", "sudo"),
        ("/usr/bin/sudo ls", "sudo"),
        ("python3 -c \"import os; os.system('rm -rf x')\"", "rm"),
        ("echo r''m", "rm"),
        ("echo --rm", "rm"),
        ("echo sudo.", "sudo"),
        ("echo mkfs.ext4", "mkfs.*"),
        ("echo 'x:(){ :; }'", ":(){"),
    ] {
        assert_eq!(found(command).as_deref(), Some(word), "{command}");
    }
}

#[test]
fn what_only_looks_like_one_passes() {
    for command in [
        "echo curling",
        "cat rm.txt",
        "echo charm",
        "python3 -c 'os.kill'",
        "git init",
        "echo SUDO",
    ] {
        assert_eq!(found(command), None, "{command}");
    }
}

#[test]
fn an_empty_entry_denies_nothing() {
    assert_eq!(find(&[String::new()], &["echo".to_owned()]), None);
}
