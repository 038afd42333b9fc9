//! What the tools give to those who stay inside.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
};

use tollgate_contract::ErrorCode;
use tollgate_tools::fs::{
    Entry, Kind, ListDirInput, ReadTextInput, WriteOutcome, list_dir, read_text,
};

use crate::support::{Place, names};

async fn first(place: &Place, path: &str, max_bytes: u32) -> (String, u64, bool, bool) {
    let input = ReadTextInput { path: path.to_owned(), max_bytes };
    let text = read_text(&place.root, input).await.unwrap();
    (text.text, text.bytes, text.truncated, text.lossy)
}

#[tokio::test]
async fn a_text_is_cut_between_characters_and_says_so() {
    let place = Place::new().await;
    place.write("f", "aé€😀", false).await.unwrap();
    let cut = |text: &str| (text.to_owned(), 10, true, false);
    for (most, text) in [(1, "a"), (2, "a"), (3, "aé"), (5, "aé"), (6, "aé€"), (9, "aé€")] {
        assert_eq!(first(&place, "f", most).await, cut(text), "{most}");
    }
    assert_eq!(first(&place, "f", 10).await, ("aé€😀".to_owned(), 10, false, false));
    assert_eq!(first(&place, "f", u32::MAX).await.0, "aé€😀");
}

#[tokio::test]
async fn what_is_not_text_is_given_with_a_flag() {
    let place = Place::new().await;
    fs::write(place.inside("f"), b"a\xff\xe2\x82b\xf0\x9f").unwrap();
    let text = "a\u{fffd}\u{fffd}b\u{fffd}".to_owned();
    assert_eq!(first(&place, "f", 100).await, (text, 7, false, true));
    // Cut inside of what might have become a character.
    assert_eq!(first(&place, "f", 4).await, ("a\u{fffd}".to_owned(), 7, true, true));
    fs::write(place.inside("empty"), b"").unwrap();
    assert_eq!(first(&place, "empty", 100).await, (String::new(), 0, false, false));
}

#[tokio::test]
async fn what_is_not_there_is_said() {
    let place = Place::new().await;
    for error in [place.read("a/b").await.unwrap_err(), place.list("a").await.unwrap_err()] {
        assert_eq!(error.code(), ErrorCode::NotFound);
        assert!(error.to_string().contains("`a"), "{error}");
    }
}

#[tokio::test]
async fn a_listing_is_sorted_typed_and_says_when_it_is_cut() {
    let place = Place::new().await;
    place.write("b.txt", "12345", false).await.unwrap();
    place.write("a/x", "1", false).await.unwrap();
    symlink("a", place.inside("c")).unwrap();
    fs::write(place.inside("B"), "").unwrap();
    let entry =
        |name: &str, kind, bytes| Entry { name: name.to_owned(), kind, bytes, escaped: false };
    let all = [
        entry("B", Kind::File, Some(0)),
        entry("a", Kind::Dir, None),
        entry("b.txt", Kind::File, Some(5)),
        entry("c", Kind::Link, None),
    ];
    let listing = place.list(".").await.unwrap();
    assert_eq!(
        (listing.entries.as_slice(), listing.total, listing.truncated),
        (&all[..], 4, false)
    );
    let input = ListDirInput { path: ".".to_owned(), max_entries: 2 };
    let listing = list_dir(&place.root, input).await.unwrap();
    assert_eq!(
        (listing.entries.as_slice(), listing.total, listing.truncated),
        (&all[..2], 4, true)
    );
}

#[tokio::test]
async fn of_many_names_the_first_are_listed() {
    let place = Place::new().await;
    for number in 0..3_000 {
        fs::write(place.inside(&format!("{:04}", number * 7 % 3_000)), "").unwrap();
    }
    let listing = place.list(".").await.unwrap();
    let listed: Vec<&str> = listing.entries.iter().map(|entry| entry.name.as_str()).collect();
    let first: Vec<String> = (0..200).map(|number| format!("{number:04}")).collect();
    assert_eq!(
        (listed, listing.total, listing.truncated),
        (first.iter().map(String::as_str).collect(), 3_000, true)
    );
}

#[tokio::test]
async fn names_that_cannot_be_shown_are_escaped() {
    let place = Place::new().await;
    for name in [&b"a\nb"[..], b"\xff\\", b"back\\slash", b"\xe2\x80\xaeevil"] {
        fs::write(place.inside("").join(OsStr::from_bytes(name)), "").unwrap();
    }
    let listing = place.list(".").await.unwrap();
    let shown: Vec<(&str, bool)> =
        listing.entries.iter().map(|entry| (entry.name.as_str(), entry.escaped)).collect();
    assert_eq!(
        shown,
        [("a\\nb", true), ("back\\slash", false), ("\\u{202e}evil", true), ("\\xff\\\\", true)]
    );
}

#[tokio::test]
async fn a_write_makes_folders_and_says_what_it_did() {
    let place = Place::new().await;
    let written = place.write("a/b/c.txt", "one", false).await.unwrap();
    assert_eq!((written.bytes, written.outcome), (3, WriteOutcome::Created));
    let error = place.write("a/b/c.txt", "two", false).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Conflict);
    assert!(error.to_string().contains("pass overwrite=true"), "{error}");
    assert_eq!(place.read("a/b/c.txt").await.unwrap().text, "one");
    let written = place.write("a/b/c.txt", "two!", true).await.unwrap();
    assert_eq!((written.bytes, written.outcome), (4, WriteOutcome::Replaced));
    assert_eq!(place.read("a/b/c.txt").await.unwrap().text, "two!");
    let written = place.write("new", "", true).await.unwrap();
    assert_eq!((written.bytes, written.outcome), (0, WriteOutcome::Created));
    assert_eq!(names(&place.inside("a/b")), ["c.txt"]);
}

#[tokio::test]
async fn a_replaced_file_keeps_its_mode_and_is_a_new_one() {
    let place = Place::new().await;
    place.write("run.sh", "one", false).await.unwrap();
    fs::set_permissions(place.inside("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::hard_link(place.inside("run.sh"), place.inside("other")).unwrap();
    place.write("run.sh", "two", true).await.unwrap();
    let mode = fs::metadata(place.inside("run.sh")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o750);
    assert_eq!(place.read("other").await.unwrap().text, "one");
}

#[tokio::test]
async fn roots_are_for_their_owner_alone() {
    let place = Place::new().await;
    for path in [place.root.path(), place.root.path().parent().unwrap()] {
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700);
    }
}
