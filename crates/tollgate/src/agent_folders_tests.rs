use super::*;

#[test]
fn folders_are_kept_once_each_by_their_real_path_whatever_their_name_is() {
    let place = tempfile::tempdir().unwrap();
    let list = place.path().join("deep/down/tollgate.folders");
    let odd = place.path().join("a \"name\"\nof two lines");
    fs::create_dir_all(&odd).unwrap();
    std::os::unix::fs::symlink(&odd, place.path().join("link")).unwrap();
    assert_eq!(read(&list).unwrap(), Vec::<PathBuf>::new());
    add(&list, &odd).unwrap();
    add(&list, &place.path().join("link")).unwrap();
    add(&list, place.path()).unwrap();
    let real = |path: &Path| fs::canonicalize(path).unwrap();
    assert_eq!(read(&list).unwrap(), [real(&odd), real(place.path())]);
    // What is gone stays on it until there are many.
    fs::remove_dir(&odd).unwrap();
    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    add(&list, &other).unwrap();
    assert_eq!(read(&list).unwrap().len(), 3);
    // A list that cannot be read is not taken for an empty one.
    fs::write(&list, "no JSON\n").unwrap();
    assert!(add(&list, &other).is_err());
    assert_eq!(fs::read_to_string(&list).unwrap(), "no JSON\n");
}

#[test]
fn several_at_once_lose_none() {
    let place = tempfile::tempdir().unwrap();
    let list = place.path().join("tollgate.folders");
    let folders: Vec<PathBuf> = (0..16).map(|n| place.path().join(n.to_string())).collect();
    std::thread::scope(|scope| {
        for folder in &folders {
            fs::create_dir(folder).unwrap();
            let list = &list;
            scope.spawn(move || add(list, folder).unwrap());
        }
    });
    let mut kept = read(&list).unwrap();
    kept.sort();
    let mut wanted: Vec<PathBuf> = folders.iter().map(|f| fs::canonicalize(f).unwrap()).collect();
    wanted.sort();
    assert_eq!(kept, wanted);
}
