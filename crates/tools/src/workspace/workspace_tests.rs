use std::{collections::HashSet, fs, os::unix::fs::symlink};

use proptest::prelude::*;

use super::*;

#[test]
fn folders_are_readable_and_safe() {
    for (session, folder) in [
        ("review-42", "review-42"),
        ("a.b", "a.b"),
        ("", "~"),
        (".", "%2e"),
        ("..", "%2e."),
        ("a/b", "a%2fb"),
        ("A", "%41"),
        ("~", "%7e"),
        ("%41", "%2541"),
        ("ü", "%c3%bc"),
        ("a b", "a%20b"),
    ] {
        assert_eq!(folder_name(session), folder);
    }
    let long = folder_name(&"X".repeat(200));
    assert_eq!(long.len(), 60 + 1 + 64);
    assert_ne!(long, folder_name(&"X".repeat(199)));
    assert!(folder_name(&"x".repeat(120)).ends_with("xxx"));
}

proptest! {
    #[test]
    fn no_two_sessions_share_a_folder(names in prop::collection::hash_set(".{0,200}", 2..20)) {
        let folders: HashSet<String> =
            names.iter().map(|name| folder_name(name).to_lowercase()).collect();
        prop_assert_eq!(folders.len(), names.len());
        for folder in folders {
            prop_assert!(folder.len() <= 125 && !folder.is_empty());
            prop_assert!(!folder.starts_with('.') && !folder.contains('/'));
            prop_assert!(folder.bytes().all(|byte| byte.is_ascii_graphic()));
        }
    }
}

#[tokio::test]
async fn sessions_have_folders_of_their_own() {
    let data = tempfile::tempdir().unwrap();
    let workspaces = Workspaces::new(data.path(), None, Quota::default()).unwrap();
    let (upper, lower) = (workspaces.open("A").await.unwrap(), workspaces.open("a").await.unwrap());
    assert_ne!(upper.path(), lower.path());
    let again = workspaces.open("..").await.unwrap();
    let real = fs::canonicalize(data.path()).unwrap();
    assert_eq!(again.path(), real.join("workspace").join("%2e."));
}

#[tokio::test]
async fn a_session_can_have_a_root_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (data, project) = (folder.path().join("data"), folder.path().join("project"));
    fs::create_dir_all(&project).unwrap();
    for one_for_all in [None, Some(folder.path().join("all"))] {
        one_for_all.iter().for_each(|all| fs::create_dir_all(all).unwrap());
        let workspaces = Workspaces::new(&data, one_for_all.as_deref(), Quota::default()).unwrap();
        let usual = workspaces.open("notes").await.unwrap().path().to_owned();
        let clone = workspaces.clone();
        workspaces.bind("notes", Some(&project)).unwrap();
        let real = fs::canonicalize(&project).unwrap();
        assert_eq!(clone.open("notes").await.unwrap().path(), real);
        // Others are where they were.
        assert_ne!(clone.open("other").await.unwrap().path(), real);
        // What may not be a root for all may not be one for a session, and changes nothing.
        let refused = workspaces.bind("notes", Some(folder.path()));
        assert!(matches!(refused, Err(WorkspaceError::HoldsData { .. })));
        let refused = workspaces.bind("notes", Some(&data));
        assert!(matches!(refused, Err(WorkspaceError::HoldsData { .. })));
        let refused = workspaces.bind("notes", Some(&data.join("workspace")));
        assert!(matches!(
            refused,
            Err(WorkspaceError::InsideData { .. } | WorkspaceError::Unusable { .. })
        ));
        let refused = workspaces.bind("notes", Some(Path::new("/")));
        assert!(matches!(refused, Err(WorkspaceError::Everything)));
        let refused = workspaces.bind("notes", Some(&folder.path().join("nowhere")));
        assert!(matches!(refused, Err(WorkspaceError::Unusable { .. })));
        assert_eq!(clone.open("notes").await.unwrap().path(), real);
        workspaces.bind("notes", None).unwrap();
        assert_eq!(clone.open("notes").await.unwrap().path(), usual);
    }
}

#[test]
fn a_root_that_reaches_into_the_data_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir_all(data.join("keys")).unwrap();
    fs::create_dir_all(data.join("workspace/one")).unwrap();
    fs::create_dir(folder.path().join("fine")).unwrap();
    symlink(folder.path(), folder.path().join("fine/link")).unwrap();
    symlink(&data, folder.path().join("data-link")).unwrap();
    let refused = |data: &Path, root: &Path| {
        Workspaces::new(data, Some(root), Quota::default()).err().map(|error| error.to_string())
    };
    for (root, says) in [
        ("", "holds the data folder"),
        ("data", "holds the data folder"),
        ("data-link", "holds the data folder"),
        ("fine/link", "holds the data folder"),
        ("data/keys", "inside the data folder"),
        ("data/keys/../keys", "inside the data folder"),
        ("missing", "cannot be used as a workspace"),
    ] {
        let error = refused(&data, &folder.path().join(root)).unwrap();
        assert!(error.contains(says), "{root}: {error}");
    }
    assert!(refused(&data, Path::new("/")).unwrap().contains("root of the file system"));
    // The data folder by its other name does not help.
    let error = refused(&folder.path().join("data-link"), &data).unwrap();
    assert!(error.contains("holds the data folder"), "{error}");
    for root in ["fine", "data/workspace/one"] {
        assert_eq!(refused(&data, &folder.path().join(root)), None, "{root}");
    }
}

#[tokio::test]
async fn one_root_serves_all_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let (data, root) = (folder.path().join("data"), folder.path().join("project"));
    fs::create_dir(&root).unwrap();
    let workspaces = Workspaces::new(&data, Some(&root), Quota::default()).unwrap();
    let (one, two) = (workspaces.open("one").await.unwrap(), workspaces.open("two").await.unwrap());
    assert_eq!(one.path(), two.path());
    assert_eq!(one.path(), fs::canonicalize(&root).unwrap());
}

#[tokio::test]
async fn a_root_that_became_a_link_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let workspaces = Workspaces::new(folder.path(), None, Quota::default()).unwrap();
    let root = workspaces.open("s").await.unwrap();
    fs::remove_dir(root.path()).unwrap();
    symlink("/etc", root.path()).unwrap();
    assert!(workspaces.open("s").await.is_err());
}

#[tokio::test]
async fn a_walk_ends_when_there_is_more_than_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let quota = Quota { files: 10, ..Quota::default() };
    let workspaces = Workspaces::new(folder.path(), None, quota).unwrap();
    let root = workspaces.open("s").await.unwrap();
    for number in 0..100 {
        fs::write(root.path().join(number.to_string()), "").unwrap();
    }
    assert_eq!(root.usage().await.unwrap().files, 11);
}

#[tokio::test]
async fn what_a_dead_writer_left_is_removed_and_what_a_living_one_holds_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let workspaces = Workspaces::new(folder.path(), None, Quota::default()).unwrap();
    let root = workspaces.open("s").await.unwrap();
    let staged = |digit: &str| root.path().join(format!(".tollgate-write-{}", digit.repeat(32)));
    fs::write(staged("a"), "left").unwrap();
    let held = fs::File::create(staged("b")).unwrap();
    held.lock().unwrap();
    root.usage().await.unwrap();
    assert!(!staged("a").exists());
    assert!(staged("b").exists());
}
