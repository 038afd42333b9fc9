//! Where a provider's token is read from: an environment variable or a file.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use tollgate_contract::{Quoted, Secret};

/// The largest file that holds a token.
const LARGEST: u64 = 64 * 1024;

/// The token in an environment variable.
pub(crate) fn from_environment(name: &str) -> Result<Secret, String> {
    let token = std::env::var(name).map(Secret::new).map_err(|_| {
        format!("the environment variable {} of `token_env` is not set", Quoted::new(name))
    })?;
    trimmed(&token).ok_or_else(|| {
        format!("the environment variable {} of `token_env` is empty", Quoted::new(name))
    })
}

/// The token in a file.
pub(crate) async fn from_file(path: PathBuf) -> Result<Secret, String> {
    let read = tokio::task::spawn_blocking(move || {
        let problem = |problem: String| {
            format!("`token_file` {} {problem}", Quoted::new(&path.to_string_lossy()))
        };
        let text =
            read_file(&path).map_err(|error| problem(format!("cannot be read ({error})")))?;
        trimmed(&text).ok_or_else(|| problem("is empty".to_owned()))
    });
    read.await.unwrap_or_else(|_| Err("`token_file` cannot be read".to_owned()))
}

fn read_file(path: &Path) -> std::io::Result<Secret> {
    // Reading what is not a file may never end.
    if !path.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(LARGEST).read_to_string(&mut text)?;
    Ok(Secret::new(text))
}

/// A token without the line end that files have. An empty one is none.
fn trimmed(token: &Secret) -> Option<Secret> {
    let token = token.expose().trim();
    (!token.is_empty()).then(|| Secret::new(token.to_owned()))
}
