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

#[test]
fn what_holds_the_list_or_the_data_of_the_user_is_no_agents_folder() {
    let place = tempfile::tempdir().unwrap();
    let home = fs::canonicalize(place.path()).unwrap();
    let list = home.join(".local/share/tollgate.folders");
    for folder in ["proj", ".local/share/tollgate/workspace/main", ".local/share/tollgate/agent"] {
        fs::create_dir_all(home.join(folder)).unwrap();
    }
    std::os::unix::fs::symlink(&home, home.join("proj/link")).unwrap();
    for folder in ["", ".local", ".local/share", ".local/share/tollgate", "proj/link"] {
        assert!(held(&list, &home.join(folder)).is_some(), "{folder}");
    }
    assert!(held(&list, &home.join(".local/share/tollgate/agent")).is_some());
    for folder in ["proj", ".local/share/tollgate/workspace/main"] {
        assert_eq!(held(&list, &home.join(folder)), None);
    }
    // Also where nothing is there yet.
    let other = home.join("proj/none/at/all/tollgate.folders");
    assert!(held(&other, &home.join("proj")).is_some());
}

#[test]
fn a_pipe_in_the_lists_place_keeps_nobody_waiting() {
    let place = tempfile::tempdir().unwrap();
    let list = place.path().join("tollgate.folders");
    let made = std::process::Command::new("mkfifo").arg(&list).status().unwrap();
    assert!(made.success());
    assert_eq!(read(&list).unwrap_err().to_string(), "it is no file");
}
