use super::*;

#[test]
fn what_is_sealed_opens_only_in_its_place_and_unchanged() {
    let data = tempfile::tempdir().unwrap();
    let seal = Seal::of_folder(data.path()).unwrap();
    let mut sealed = seal.seal(b"here", b"the result").unwrap();
    assert!(!sealed.windows(6).any(|part| part == b"result"));
    assert_eq!(seal.open(b"here", &sealed).as_deref(), Some(b"the result".as_slice()));
    assert_eq!(seal.open(b"there", &sealed), None);
    assert_eq!(seal.open(b"here", b"short"), None);
    *sealed.last_mut().unwrap() ^= 1;
    assert_eq!(seal.open(b"here", &sealed), None);
}

#[test]
fn the_secret_outlives_the_process_and_is_for_its_owner_alone() {
    let data = tempfile::tempdir().unwrap();
    let first = Seal::of_folder(data.path()).unwrap();
    let sealed = first.seal(b"here", b"kept").unwrap();
    let second = Seal::of_folder(data.path()).unwrap();
    assert_eq!(second.open(b"here", &sealed).as_deref(), Some(b"kept".as_slice()));
    assert_eq!(first.hash(&[b"a", b"b"]), second.hash(&[b"a", b"b"]));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(data.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    fs::write(data.path().join(FILE), b"too short").unwrap();
    assert!(Seal::of_folder(data.path()).err().unwrap().operator().contains("damaged"));
}

#[test]
fn parts_are_told_apart_whatever_they_hold() {
    let data = tempfile::tempdir().unwrap();
    let seal = Seal::of_folder(data.path()).unwrap();
    assert_ne!(seal.hash(&[b"ab", b"c"]), seal.hash(&[b"a", b"bc"]));
    assert_ne!(seal.hash(&[b"a"]), seal.hash(&[b"a", b""]));
}
