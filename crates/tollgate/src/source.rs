//! Reading what a command was pointed at: a file, or `-` for the standard input.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use tollgate_contract::Quoted;

use crate::output::Failure;

/// The largest file that a command reads.
const LARGEST: u64 = 256 * 1024 * 1024;

/// Reads a file or the standard input, whole.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = name(path);
    let unreadable = |error: io::Error| Failure::unreadable(&name, &error);
    let mut bytes = Vec::new();
    if is_stdin(path) {
        io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    } else {
        let file = File::open(path).map_err(unreadable)?;
        file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    }
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if length > LARGEST { Err(Failure::too_large(&name, LARGEST)) } else { Ok(bytes) }
}

/// Reads a file or the standard input as text.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(read(path)?)
        .map_err(|error| Failure::bad_input(format!("{} is not valid UTF-8: {error}", name(path))))
}

/// How the place that a text came from is named in messages.
pub(crate) fn name(path: &Path) -> String {
    if is_stdin(path) {
        "the standard input".to_owned()
    } else {
        Quoted::new(&path.to_string_lossy()).to_string()
    }
}

/// Does `path` mean the standard input?
pub(crate) fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}
