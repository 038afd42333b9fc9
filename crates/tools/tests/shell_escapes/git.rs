//! Git, which runs other programs for many reasons, and none of them here.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::stage::each;

#[test]
fn git_works_in_the_workspace() {
    each(|stage| {
        for cmd in [
            "git init -q .",
            "git add -A",
            "git commit -q --allow-empty -m first",
            "git status --short",
        ] {
            let output = stage.run(cmd);
            assert_eq!(output.exit_code, Some(0), "{cmd}: {output:?}");
        }
        assert_eq!(stage.run("git log --format=%s").stdout, "first\n");
    });
}

#[test]
fn hooks_aliases_and_settings_run_nothing() {
    each(|stage| {
        stage.run("git init -q .");
        let hook = stage.root.join(".git/hooks/pre-commit");
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        fs::write(&hook, "#!/bin/sh\necho executed > ran\n").unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        let secret = stage.secret();
        for cmd in [
            "git commit --allow-empty -m x".to_owned(),
            "git -c alias.x='!echo executed > ran' x".to_owned(),
            "git -c core.pager='echo executed > ran' -c pager.log=true --paginate log".to_owned(),
            "git -c core.fsmonitor='echo executed > ran' status".to_owned(),
            "git -c core.sshCommand='echo executed > ran' clone host:path".to_owned(),
            "git -c core.editor='echo executed > ran' commit --allow-empty".to_owned(),
            "git -c diff.external='echo executed > ran' diff --no-index .git/HEAD .git/config"
                .to_owned(),
            "git -c credential.helper='!echo executed > ran' credential fill".to_owned(),
            format!("git diff --no-index .git/HEAD {secret}"),
            format!("git clone {} here", stage.outside.display()),
            format!("git hash-object -w {secret}"),
            format!("git --git-dir={} log", stage.outside.display()),
        ] {
            let output = stage.run(&cmd);
            stage.nothing_leaked(&cmd, &output);
            assert!(!stage.root.join("ran").exists(), "{cmd}: {output:?}");
        }
    });
}
