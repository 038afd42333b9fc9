use std::fs;

use super::*;

type Stage = for<'a> fn(&'a OwnedFd) -> Result<Staged<'a>, Unwritten>;

/// Both ways to stage a file: as most file systems can, and as all can.
const WAYS: [Stage; 2] = [
    |folder| Staged::nameless(folder).map_err(Unwritten::Errno),
    |folder| Staged::with_name(folder),
];

fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn both_ways_to_stage_a_file_do_the_same() {
    for stage in WAYS {
        let place = tempfile::tempdir().unwrap();
        let folder = OwnedFd::from(File::open(place.path()).unwrap());
        let target = Target::read("f").unwrap();
        let write = |text: &str, overwrite, was_there| {
            let staged = stage(&folder).and_then(|staged| staged.filled(None, text.as_bytes()));
            let staged = staged.map_err(|error| error.said("f")).unwrap();
            let outcome = staged.named(&target, overwrite, was_there);
            (outcome, fs::read_to_string(place.path().join("f")).unwrap(), names(place.path()))
        };
        let there = |outcome, text: &str| (outcome, text.to_owned(), vec!["f".to_owned()]);
        assert_eq!(write("one", false, false), there(Ok(WriteOutcome::Created), "one"));
        // What was seen before does not count: somebody may have been faster.
        let exists = FsProblem::Exists(Quoted::new("f"));
        assert_eq!(write("two", false, false), there(Err(exists), "one"));
        assert_eq!(write("three", true, false), there(Ok(WriteOutcome::Replaced), "three"));
        assert_eq!(write("four", true, true), there(Ok(WriteOutcome::Replaced), "four"));
        drop(stage(&folder).map_err(|error| error.said("f")).unwrap());
        assert_eq!(names(place.path()), ["f"]);
    }
}

#[test]
fn names_that_writing_uses_are_not_for_others() {
    let name = beneath::staged_name().unwrap();
    assert_eq!(Target::read(&name).err(), Some(FsProblem::Reserved));
    assert_eq!(Target::read(&format!("d/{name}")).err(), Some(FsProblem::Reserved));
    assert!(Target::read(".tollgate-write-notes").is_ok());
}
