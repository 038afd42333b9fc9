//! What is refused before anything runs.

use crate::stage::Stage;
use tollgate_tools::shell::ShellConfig;

fn stage() -> Stage {
    Stage::set(crate::stage::As::Nobody, "full", ShellConfig::default())
}

#[test]
fn quoting_tricks_do_not_make_a_shell() {
    let stage = stage();
    for cmd in [
        "ls; id",
        "ls && id",
        "ls | id",
        "ls $(id)",
        "ls `id`",
        "ls > x",
        "ls < x",
        "ls\nid",
        "ls \\\nid",
        "ls \"$(id)\"",
        "ls \0id",
        "ls\u{a0}id",
        "ls\u{2003}-l",
        "ls 'x",
        "ls \\",
        "",
        " ",
        "''",
        "PATH=. ls",
        "ls ~",
        "ls *",
        "(ls)",
        "ls & id",
        "ls {a,b}",
        "ls\rid",
    ] {
        stage.refused(cmd);
    }
}

#[test]
fn only_programs_of_the_list_are_run() {
    let stage = stage();
    for cmd in [
        "sh -c ls",
        "/bin/ls",
        "./ls",
        "bash",
        "env ls",
        "nonexistent",
        "../ls",
        "Ls",
        "ls\u{200b}",
    ] {
        let message = stage.refused(cmd);
        assert!(message.contains("not one of the programs"), "{cmd}: {message}");
    }
}

#[test]
fn denied_words_are_named() {
    let stage = stage();
    for (cmd, word) in
        [("echo sudo", "sudo"), ("python3 -c \"print('rm')\"", "rm"), ("git rm x", "rm")]
    {
        let message = stage.refused(cmd);
        assert!(message.contains(&format!("`{word}`")), "{cmd}: {message}");
    }
    assert_eq!(stage.run("echo curling").stdout, "curling\n");
}
