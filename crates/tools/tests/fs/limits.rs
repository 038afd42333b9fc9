//! How much fits, and who gets the last of it.

use std::{fs, path::Path, sync::Arc};

use tollgate_contract::{Error, ErrorCode};
use tollgate_tools::workspace::{Quota, Usage, Workspaces};

use crate::support::{Place, in_namespaces, names, role};

/// Runs 16 writers at once, each with its own numbers, and gives what came of it.
async fn sixteen(
    place: &Arc<Place>,
    each: usize,
    path: impl Fn(usize, usize) -> String,
    text: &str,
    overwrite: bool,
) -> Vec<Result<String, Error>> {
    let mut tasks = Vec::new();
    for writer in 0..16 {
        for number in 0..each {
            let (place, path, text) = (Arc::clone(place), path(writer, number), text.to_owned());
            tasks.push(tokio::spawn(async move {
                let text = if text.is_empty() { format!("by {writer}") } else { text };
                place.write(&path, &text, overwrite).await.map(|_| text)
            }));
        }
    }
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap());
    }
    results
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_writers_do_not_write_more_than_fits() {
    let place = Arc::new(Place::with(Quota { bytes: 50_500, files: 1_000 }).await);
    let name = |writer, number| format!("w{writer}-{number}");
    let results = sixteen(&place, 5, name, &"x".repeat(1_000), false).await;
    let written = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(written, 50);
    let refused = results.into_iter().find_map(Result::err).unwrap();
    assert_eq!(refused.code(), ErrorCode::ToolFailed);
    assert!(refused.to_string().contains("bytes of 50500 would be used"), "{refused}");
    assert_eq!(place.root.usage().await.unwrap(), Usage { bytes: 50_000, files: 50 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_writers_do_not_make_more_files_than_fit() {
    let place = Arc::new(Place::with(Quota { bytes: 1_000_000, files: 21 }).await);
    // Each needs a folder and a file.
    let name = |writer, number| format!("w{writer}-{number}/f");
    let results = sixteen(&place, 2, name, "x", false).await;
    let written = results.iter().filter(|result| result.is_ok()).count();
    assert!((5..=10).contains(&written), "{written}");
    assert!(place.root.usage().await.unwrap().files <= 21);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_sixteen_who_want_a_new_file_one_gets_it() {
    let place = Arc::new(Place::new().await);
    for round in 0..20 {
        let path = format!("d{round}/f");
        let results = sixteen(&place, 1, |_, _| path.clone(), "", false).await;
        let mut winners = results.iter().filter_map(|result| result.as_ref().ok());
        let winner = winners.next().unwrap();
        assert_eq!(winners.next(), None);
        assert_eq!(fs::read_to_string(place.inside(&path)).unwrap(), *winner);
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            assert_eq!(error.code(), ErrorCode::Conflict);
            assert!(error.to_string().contains("overwrite=true"), "{error}");
        }
    }
}

/// Two gates that share a root do not stand in one line; the kernel still lets only one of them win.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_gates_that_want_a_new_file_one_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared");
    fs::create_dir(&shared).unwrap();
    let mut roots = Vec::new();
    for data in ["one", "two"] {
        let workspaces =
            Workspaces::new(&folder.path().join(data), Some(&shared), Quota::default()).unwrap();
        roots.push(workspaces.open("any").await.unwrap());
    }
    for round in 0..100 {
        let write = |root: &tollgate_tools::workspace::Root, text: &str| {
            let (root, path, text) = (root.clone(), format!("f{round}"), text.to_owned());
            tokio::spawn(async move {
                let input = tollgate_tools::fs::WriteTextInput { path, text, overwrite: false };
                tollgate_tools::fs::write_text(&root, input).await.is_ok()
            })
        };
        let (one, two) = (write(&roots[0], "one"), write(&roots[1], "two"));
        let (one, two) = (one.await.unwrap(), two.await.unwrap());
        assert!(one != two, "round {round}: {one} {two}");
        let text = fs::read_to_string(shared.join(format!("f{round}"))).unwrap();
        assert_eq!(text, if one { "one" } else { "two" });
    }
    assert_eq!(names(&shared).len(), 100);
}

#[tokio::test]
async fn one_write_does_not_make_endless_folders() {
    let place = Place::new().await;
    let error = place.write(&format!("{}f", "d/".repeat(101)), "x", false).await.unwrap_err();
    assert!(error.to_string().contains("more than 100 new folders"), "{error}");
    place.write(&format!("{}f", "d/".repeat(150)), "x", false).await.unwrap();
}

#[tokio::test]
async fn replacing_counts_the_difference() {
    let place = Place::with(Quota { bytes: 1_000, files: 10 }).await;
    place.write("f", &"x".repeat(900), false).await.unwrap();
    place.write("f", &"y".repeat(1_000), true).await.unwrap();
    let error = place.write("f", &"z".repeat(1_001), true).await.unwrap_err();
    assert!(error.to_string().contains("no room"), "{error}");
    assert_eq!(place.read("f").await.unwrap().text, "y".repeat(1_000));
    place.write("f", "small", true).await.unwrap();
    place.write("g", &"x".repeat(995), false).await.unwrap();
    assert_eq!(place.root.usage().await.unwrap(), Usage { bytes: 1_000, files: 2 });
}

#[tokio::test]
async fn what_else_wrote_counts_once_that_is_said() {
    let place = Place::with(Quota { bytes: 1_000, files: 10 }).await;
    place.write("f", "x", false).await.unwrap();
    fs::write(place.inside("by-a-command"), "x".repeat(5_000)).unwrap();
    place.workspaces.invalidate(place.root.path());
    let error = place.write("g", "x", false).await.unwrap_err();
    assert!(error.to_string().contains("no room"), "{error}");
    // What makes it less is let through even then.
    place.write("by-a-command", "", true).await.unwrap();
    place.write("g", "x", false).await.unwrap();
}

#[tokio::test]
async fn links_are_counted_and_not_followed() {
    let place = Place::new().await;
    std::os::unix::fs::symlink("/usr", place.inside("usr")).unwrap();
    std::os::unix::fs::symlink("..", place.inside("up")).unwrap();
    place.write("d/f", "12345", false).await.unwrap();
    assert_eq!(place.root.usage().await.unwrap(), Usage { bytes: 5, files: 4 });
}

/// On a disk of 256 kB.
#[tokio::test]
async fn a_full_disk_leaves_the_old_file_and_no_litter() {
    let role = role();
    if role.as_deref() != Some("small-disk") {
        let folder = tempfile::tempdir().unwrap();
        let setup = "mount -t tmpfs -o size=256k tmpfs \"$FOLDER\"";
        let test = "limits::a_full_disk_leaves_the_old_file_and_no_litter";
        let done = in_namespaces(setup, test, "small-disk", folder.path());
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
        assert!(said.contains("1 passed"), "{said}");
        return;
    }
    let folder = std::env::var("FOLDER").unwrap();
    let workspaces = Workspaces::new(Path::new(&folder), None, Quota::default()).unwrap();
    let root = workspaces.open("s").await.unwrap();
    let write = async |path: &str, text: String, overwrite| {
        let input = tollgate_tools::fs::WriteTextInput { path: path.to_owned(), text, overwrite };
        tollgate_tools::fs::write_text(&root, input).await
    };
    write("f", "old".to_owned(), false).await.unwrap();
    for (path, overwrite) in [("f", true), ("new", false)] {
        let error = write(path, "x".repeat(1_000_000), overwrite).await.unwrap_err();
        assert!(error.to_string().contains("the disk is full"), "{error}");
    }
    assert_eq!(fs::read_to_string(root.path().join("f")).unwrap(), "old");
    assert_eq!(names(root.path()), ["f"]);
    write("f", "fits".to_owned(), true).await.unwrap();
}
