//! The work of `fs.read_text`.

use std::{fs::File, io::Read};

use super::{FsProblem, MOST_READ, ReadTextInput, Text, beneath};
use crate::workspace::Root;

pub(super) fn read(root: &Root, input: ReadTextInput) -> Result<Text, FsProblem> {
    let (file, stat) = beneath::open_file(root, &input.path)?;
    let most = input.max_bytes.clamp(1, MOST_READ);
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let expected = size.min(u64::from(most)).saturating_add(1);
    let mut bytes = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
    // One more than is given, to know whether there is more.
    File::from(file)
        .take(u64::from(most) + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| FsProblem::Io(error.to_string()))?;
    let read = bytes.len() as u64;
    let truncated = read > u64::from(most);
    bytes.truncate(most as usize);
    let (text, lossy) = text(bytes, truncated);
    // A file that grew while it was read is as large as what was read of it.
    Ok(Text { path: input.path, text, bytes: size.max(read), truncated, lossy })
}

/// The bytes as text, and whether some of them were none. A character that the cut went through is left out.
fn text(bytes: Vec<u8>, cut: bool) -> (String, bool) {
    let bytes = match String::from_utf8(bytes) {
        Ok(text) => return (text, false),
        Err(error) => error.into_bytes(),
    };
    let mut text = String::with_capacity(bytes.len());
    let mut lossy = false;
    let mut left = bytes.len();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        left -= chunk.valid().len() + chunk.invalid().len();
        let ends_inside = cut && left == 0 && may_go_on(chunk.invalid());
        if !chunk.invalid().is_empty() && !ends_inside {
            text.push(char::REPLACEMENT_CHARACTER);
            lossy = true;
        }
    }
    (text, lossy)
}

/// Could these bytes be the beginning of a character?
fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
