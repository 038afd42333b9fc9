//! A process that is ended in the middle of a write leaves the old file or the new one, and nothing else.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

use tollgate_tools::{
    fs::{ListDirInput, WriteTextInput, list_dir, write_text},
    workspace::{Quota, Root, Workspaces},
};

use crate::support::{again, names, role};

const ROUNDS: usize = 25;

/// What the child writes in turn: one longer than the other, both easy to know whole.
fn text(which: usize) -> String {
    if which.is_multiple_of(2) { "a".repeat(200_000) } else { "b".repeat(50_000) }
}

async fn open(data: &Path) -> Root {
    let workspaces = Workspaces::new(data, None, Quota::default()).unwrap();
    workspaces.open("s").await.unwrap()
}

async fn write(root: &Root, text: String) {
    let input = WriteTextInput { path: "d/f".to_owned(), text, overwrite: true };
    write_text(root, input).await.unwrap();
}

#[tokio::test]
async fn a_write_that_is_ended_leaves_the_old_or_the_new() {
    if role().as_deref() == Some("writer") {
        let root = open(Path::new(&std::env::var("FOLDER").unwrap())).await;
        println!("ready");
        for which in 0.. {
            write(&root, text(which)).await;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let test = "crash::a_write_that_is_ended_leaves_the_old_or_the_new";
    let mut seen = [0, 0];
    for round in 0..ROUNDS {
        let mut child = again(test, "writer")
            .env("FOLDER", folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("ready")));
        let file = folder.path().join("workspace/s/d/f");
        // Whoever looks while it runs sees a whole file; after some looks it is ended.
        let mut looks = 0;
        while looks <= round * 7 {
            if let Ok(found) = fs::read_to_string(&file) {
                assert!(found == text(0) || found == text(1), "half a file of {}", found.len());
                looks += 1;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let found = fs::read_to_string(&file).unwrap();
        let which = (0..2).find(|which| found == text(*which)).expect("half a file");
        seen[which] += 1;
        let root = open(folder.path()).await;
        let input = ListDirInput { path: "d".to_owned(), max_entries: 10 };
        let listed = list_dir(&root, input).await.unwrap();
        assert_eq!(listed.total, 1, "no listing shows what was left");
        // The next write removes it, too.
        write(&root, text(1)).await;
        assert_eq!(names(&folder.path().join("workspace/s/d")), ["f"]);
    }
}
