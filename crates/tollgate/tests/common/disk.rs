//! A disk that can be full.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// A small disk of its own. It is unmounted when the test ends, however it ends.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    pub(crate) fn mount(at: &Path, size: &str) -> Self {
        std::fs::create_dir_all(at).unwrap();
        let options = format!("size={size}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).status();
        assert!(
            mounted.unwrap().success(),
            "a small disk cannot be mounted; run the tests as root"
        );
        Self(at.to_owned())
    }
}

/// Fills the disk that this file is on.
pub(crate) fn fill(file: &Path) {
    let mut file = std::fs::File::create(file).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
