use std::os::unix::fs::MetadataExt;

use super::*;
use crate::http::Metadata;

fn kept(text: &str) -> Kept {
    let page = Page {
        url: "https://example.com/".to_owned(),
        status: 200,
        content_type: None,
        title: None,
        text: text.to_owned(),
        truncated: false,
        bytes: 1,
        note: None,
        redirects: Vec::new(),
        metadata: Metadata { cache_hit: false, fetched_at: String::new(), age_s: 0 },
    };
    Kept { page, hosts: vec![Passed { url: "https://example.com/".to_owned(), named: false }] }
}

fn text_of(cache: &Cache, key: &str, now_ms: i64) -> Option<String> {
    cache.get(key, now_ms).map(|(kept, _)| kept.page.text)
}

#[test]
fn what_is_put_is_got_until_its_time_is_over() {
    let data = tempfile::tempdir().unwrap();
    let cache = Cache::open(data.path(), 1_000_000);
    cache.put("k", &kept("one"), 1_000, 2_000);
    assert_eq!(cache.get("k", 1_999), Some((kept("one"), 1_000)));
    assert_eq!(cache.get("other", 1_500), None);
    assert_eq!(cache.get("k", 2_000), None);
    // It is gone, not only hidden.
    assert_eq!(cache.get("k", 1_500), None);
    cache.put("k", &kept("one"), 1_000, 2_000);
    assert_eq!(cache.get("k", 999), None, "from the future");
    drop(cache);
    let cache = Cache::open(data.path(), 1_000_000);
    cache.put("k", &kept("two"), 1_000, 2_000);
    drop(cache);
    let cache = Cache::open(data.path(), 1_000_000);
    assert_eq!(text_of(&cache, "k", 1_000).as_deref(), Some("two"));
}

#[test]
fn the_oldest_make_room() {
    let data = tempfile::tempdir().unwrap();
    let cache = Cache::open(data.path(), 4 * LEAST as u64);
    for number in 0..50 {
        cache.put(&format!("k{number}"), &kept(&"x".repeat(2_000)), number, 1_000_000);
    }
    let found: Vec<i64> =
        (0..50).filter(|number| text_of(&cache, &format!("k{number}"), 100).is_some()).collect();
    assert_eq!(found, [46, 47, 48, 49]);
    cache.put("large", &kept(&"x".repeat(20_000)), 60, 1_000_000);
    assert_eq!(text_of(&cache, "large", 100), None);
    assert!(text_of(&cache, "k49", 100).is_some());
}

#[test]
fn the_file_is_for_its_owner_alone() {
    let data = tempfile::tempdir().unwrap();
    let cache = Cache::open(data.path(), 10_000);
    cache.put("k", &kept("x"), 1, 1_000);
    for entry in fs::read_dir(data.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600, "{entry:?}");
    }
}

#[test]
fn a_damaged_row_is_not_served() {
    let data = tempfile::tempdir().unwrap();
    let cache = Cache::open(data.path(), 1_000_000);
    for change in [
        "UPDATE pages SET body = CAST(replace(CAST(body AS TEXT), 'one', 'two') AS BLOB)",
        "UPDATE pages SET until_ms = 99999999",
        "UPDATE pages SET stored_ms = 0",
        "UPDATE pages SET key = 'k2'",
        "UPDATE pages SET hash = x'00'",
    ] {
        cache.put("k", &kept("one"), 1_000, 2_000);
        assert!(cache.get("k", 1_500).is_some());
        Connection::open(data.path().join(FILE)).unwrap().execute(change, []).unwrap();
        assert_eq!(cache.get("k", 1_500), None, "{change}");
        assert_eq!(cache.get("k2", 1_500), None, "{change}");
    }
}

#[test]
fn a_damaged_file_is_set_aside_when_it_is_opened() {
    for garbage in
        [&b"this is no database, and never was one"[..], b"SQLite format 3\0 but no more"]
    {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join(FILE), garbage.repeat(100)).unwrap();
        let cache = Cache::open(data.path(), 1_000_000);
        cache.put("k", &kept("one"), 1_000, 2_000);
        assert_eq!(text_of(&cache, "k", 1_500).as_deref(), Some("one"));
        assert!(data.path().join("http_cache.db.broken").exists());
    }
}

#[test]
fn a_file_that_is_damaged_while_it_is_open_costs_no_more_than_a_fetch() {
    let data = tempfile::tempdir().unwrap();
    let cache = Cache::open(data.path(), 10_000_000);
    for number in 0..200 {
        cache.put(&format!("k{number}"), &kept(&"x".repeat(5_000)), 1_000, 2_000);
    }
    drop(cache);
    let path = data.path().join(FILE);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 8;
    bytes[middle..].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let cache = Cache::open(data.path(), 10_000_000);
    for number in 0..200 {
        if let Some(text) = text_of(&cache, &format!("k{number}"), 1_500) {
            assert_eq!(text, "x".repeat(5_000));
        }
    }
    cache.put("new", &kept("one"), 1_000, 2_000);
    cache.put("new", &kept("one"), 1_000, 2_000);
    assert_eq!(text_of(&cache, "new", 1_500).as_deref(), Some("one"));
}

#[test]
fn a_folder_that_is_not_there_costs_the_cache_and_no_more() {
    let cache = Cache::open(Path::new("/nowhere/at/all"), 1_000);
    cache.put("k", &kept("one"), 1_000, 2_000);
    assert_eq!(cache.get("k", 1_500), None);
}
