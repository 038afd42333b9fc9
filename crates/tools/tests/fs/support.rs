//! A workspace with something beside it that must not be touched.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;
use tollgate_contract::{Error, ErrorCode};
use tollgate_tools::{
    fs::{
        ListDirInput, Listing, ReadTextInput, Text, WriteTextInput, Written, list_dir, read_text,
        write_text,
    },
    workspace::{Quota, Root, Workspaces},
};

/// What is in every file outside.
pub(crate) const SECRET: &str = "SECRET";

pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) workspaces: Workspaces,
    pub(crate) root: Root,
}

impl Place {
    pub(crate) async fn new() -> Self {
        Self::with(Quota::default()).await
    }

    pub(crate) async fn with(quota: Quota) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        for name in ["secret", "f"] {
            fs::write(folder.path().join("outside").join(name), SECRET).unwrap();
        }
        let workspaces = Workspaces::new(&folder.path().join("data"), None, quota).unwrap();
        let root = workspaces.open("session").await.unwrap();
        Self { folder, workspaces, root }
    }

    /// A path in the workspace.
    pub(crate) fn inside(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// A path beside it.
    pub(crate) fn outside(&self, path: &str) -> PathBuf {
        self.folder.path().join("outside").join(path)
    }

    pub(crate) async fn read(&self, path: &str) -> Result<Text, Error> {
        read_text(&self.root, ReadTextInput { path: path.to_owned(), max_bytes: 20_000 }).await
    }

    pub(crate) async fn list(&self, path: &str) -> Result<Listing, Error> {
        list_dir(&self.root, ListDirInput { path: path.to_owned(), max_entries: 200 }).await
    }

    pub(crate) async fn write(
        &self,
        path: &str,
        text: &str,
        overwrite: bool,
    ) -> Result<Written, Error> {
        let (path, text) = (path.to_owned(), text.to_owned());
        write_text(&self.root, WriteTextInput { path, text, overwrite }).await
    }

    /// Nothing outside has changed, and nothing was added.
    pub(crate) fn assert_untouched(&self) {
        assert_eq!(names(&self.outside("")), ["f", "secret"]);
        for name in ["secret", "f"] {
            assert_eq!(fs::read_to_string(self.outside(name)).unwrap(), SECRET);
        }
        let mut beside = names(self.folder.path());
        beside.retain(|name| name != "resolv.conf");
        assert_eq!(beside, ["data", "outside"]);
    }

    /// Neither read nor write nor list gets through, each with this in its message.
    pub(crate) async fn assert_refused(&self, path: &str, says: &str) {
        for error in [
            self.read(path).await.unwrap_err(),
            self.write(path, "new", false).await.unwrap_err(),
            self.write(path, "new", true).await.unwrap_err(),
            self.list(path).await.unwrap_err(),
        ] {
            assert!(error.to_string().contains(says), "{path}: {error}");
            assert_eq!(error.code(), ErrorCode::InvalidInput, "{path}: {error}");
        }
        self.assert_untouched();
    }
}

/// All names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The name of a role that this program plays when a test starts it again.
pub(crate) fn role() -> Option<String> {
    std::env::var("TOLLGATE_TEST_ROLE").ok()
}

/// This program again, to run one of its tests.
pub(crate) fn again(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("TOLLGATE_TEST_ROLE", role);
    command
}

/// Runs commands of the shell in namespaces of their own, then one of these tests.
pub(crate) fn in_namespaces(setup: &str, test: &str, role: &str, folder: &Path) -> Output {
    let script = format!("set -e; {setup}; exec \"$PROGRAM\" --exact {test} --nocapture");
    Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .env("PROGRAM", std::env::current_exe().unwrap())
        .env("TOLLGATE_TEST_ROLE", role)
        .env("FOLDER", folder)
        .output()
        .unwrap()
}
