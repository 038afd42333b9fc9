//! The work of `fs.list_dir`.

use std::{
    collections::BinaryHeap,
    ffi::{CStr, CString},
    fmt::Write as _,
    os::fd::OwnedFd,
};

use rustix::fs::{AtFlags, FileType, OFlags, statat};
use tollgate_contract::text::is_plain;

use super::{Entry, FsProblem, Kind, ListDirInput, Listing, MOST_LISTED, beneath};
use crate::workspace::Root;

pub(super) fn list(root: &Root, input: ListDirInput) -> Result<Listing, FsProblem> {
    let said = |errno| FsProblem::of(errno, &input.path);
    let path = beneath::checked(&input.path)?;
    let folder = beneath::open(root, path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(said)?;
    let most = input.max_entries.clamp(1, MOST_LISTED) as usize;
    // Of a folder with a million names only the first ones are kept: the largest of the kept is on top.
    let mut kept: BinaryHeap<CString> = BinaryHeap::with_capacity(most.min(1_024));
    let mut total: u64 = 0;
    beneath::entries(&folder, |name, _| {
        if beneath::is_staged(name.to_bytes()) {
            return true;
        }
        total += 1;
        if kept.len() < most {
            kept.push(name.to_owned());
        } else if let Some(mut largest) = kept.peek_mut()
            && name < largest.as_c_str()
        {
            *largest = name.to_owned();
        }
        true
    })
    .map_err(said)?;
    let entries: Vec<Entry> =
        kept.into_sorted_vec().iter().map(|name| entry(&folder, name)).collect();
    let truncated = (entries.len() as u64) < total;
    Ok(Listing { path: input.path, entries, total, truncated })
}

fn entry(folder: &OwnedFd, name: &CStr) -> Entry {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    // What is gone by now is listed all the same, as something else.
    let kind = match stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    };
    let size = stat.and_then(|stat| u64::try_from(stat.st_size).ok());
    let bytes = size.filter(|_| kind == Kind::File);
    let (name, escaped) = shown(name.to_bytes());
    Entry { name, kind, bytes, escaped }
}

/// A name as text. One that cannot be shown as it is is escaped, so that two names never look the same.
fn shown(name: &[u8]) -> (String, bool) {
    match std::str::from_utf8(name) {
        Ok(plain) if plain.chars().all(is_plain) => return (plain.to_owned(), false),
        _ => {}
    }
    let mut shown = String::with_capacity(name.len() * 2);
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => shown.push_str("\\\\"),
                c if is_plain(c) => shown.push(c),
                c => shown.extend(c.escape_default()),
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            _ = write!(shown, "\\x{byte:02x}");
        }
    }
    (shown, true)
}
