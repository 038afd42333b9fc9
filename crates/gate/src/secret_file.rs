//! Files that hold a secret: for their owner alone from the first moment, and never half written.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use tollgate_contract::text::hex;

use crate::clock;

/// Writes a file that only its owner may read, in place of an earlier one.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = written(path, bytes)?;
    let moved = fs::rename(&new, path);
    tidy(&new, path, moved)
}

/// Writes such a file unless there is one, and says whether it did.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let new = written(path, bytes)?;
    // A link fails where a file is; a rename would replace it.
    match fs::hard_link(&new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            tidy(&new, path, Ok(()))?;
            Ok(false)
        }
        linked => tidy(&new, path, linked).map(|()| true),
    }
}

/// Writes the bytes to a new file beside `path`, under a name that nobody else uses.
fn written(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unique: [u8; 8] = clock::random().map_err(|error| io::Error::other(error.operator()))?;
    let new = path.with_file_name(format!(".{name}.{}", hex(&unique)));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&new)?;
    let kept = file.write_all(bytes).and_then(|()| file.sync_all());
    if kept.is_err() {
        let _ = fs::remove_file(&new);
    }
    kept.map(|()| new)
}

/// Removes what is left over, and makes sure that the change itself survives.
fn tidy(new: &Path, path: &Path, done: io::Result<()>) -> io::Result<()> {
    // After a rename there is nothing left.
    let _ = fs::remove_file(new);
    done?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_writers_leave_one_whole_file_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        let first: usize = std::thread::scope(|scope| {
            let write = |number: usize| {
                let text = number.to_string().repeat(1000);
                write_new(&path, text.as_bytes()).map(usize::from)
            };
            let all: Vec<_> = (0..8).map(|number| scope.spawn(move || write(number))).collect();
            all.into_iter().map(|thread| thread.join().unwrap().unwrap()).sum()
        });
        assert_eq!(first, 1);
        let kept = fs::read_to_string(&path).unwrap();
        assert_eq!(kept.len(), 1000);
        write(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
