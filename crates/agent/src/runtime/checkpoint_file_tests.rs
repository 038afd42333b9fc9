use std::path::Path;

use super::*;

fn at(folder: &Path) -> (CheckpointFile, Checkpoint) {
    let name = SessionName::parse("notes").unwrap();
    (CheckpointFile::new(folder, name.clone()), Checkpoint::new(name))
}

fn save(file: &CheckpointFile, checkpoint: &mut Checkpoint) {
    checkpoint.revision += 1;
    file.save(checkpoint, checkpoint.revision - 1).unwrap();
}

#[test]
fn it_is_replaced_as_a_whole_and_the_one_before_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (file, mut checkpoint) = at(folder.path());
    assert!(file.load().unwrap().is_none());
    save(&file, &mut checkpoint);
    save(&file, &mut checkpoint);
    assert_eq!(file.load().unwrap().unwrap(), (checkpoint.clone(), None));

    fs::write(folder.path().join(CURRENT), "{ half").unwrap();
    let (before, problem) = file.load().unwrap().unwrap();
    assert_eq!(before.revision, 1);
    assert!(matches!(problem, Some(CheckpointError::Json(_))));
    // Going on from the copy leaves it where it is, until there is a new one.
    checkpoint.revision = 2;
    file.save(&checkpoint, 1).unwrap();
    assert_eq!(file.load().unwrap().unwrap().0.revision, 2);
    fs::write(folder.path().join(CURRENT), "").unwrap();
    assert_eq!(file.load().unwrap().unwrap().0.revision, 1);
    fs::write(folder.path().join(BEFORE), "").unwrap();
    assert!(matches!(file.load(), Err(SaveError::Damaged { .. })));
}

#[test]
fn of_two_writers_one_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (file, checkpoint) = at(folder.path());
    let saved: Vec<Result<(), SaveError>> = std::thread::scope(|scope| {
        let write = || {
            let mut mine = checkpoint.clone();
            mine.revision = 1;
            file.save(&mine, 0)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(write)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(saved.iter().filter(|saved| saved.is_ok()).count(), 1);
    for error in saved.into_iter().filter_map(Result::err) {
        assert_eq!(
            error.to_string(),
            "the session notes was changed by somebody else: it is at revision 1, and this goes on from 0; load it again"
        );
    }
}

#[test]
fn what_a_newer_version_wrote_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (file, mut checkpoint) = at(folder.path());
    save(&file, &mut checkpoint);
    save(&file, &mut checkpoint);
    let newer = checkpoint.written().replace("\"schema_version\": 1", "\"schema_version\": 9");
    fs::write(folder.path().join(CURRENT), &newer).unwrap();
    assert!(file.load().unwrap_err().to_string().contains("has the format 9"));
    assert!(file.save(&checkpoint, 2).is_err());
    assert_eq!(fs::read_to_string(folder.path().join(CURRENT)).unwrap(), newer);
}
