//! The one thing that has to be known of a binary: which loader the kernel starts it with.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
};

const PT_INTERP: u32 = 3;

/// The loader of a dynamic 64-bit binary; `None` for a static one.
pub fn interpreter(binary: &Path) -> io::Result<Option<PathBuf>> {
    let file = File::open(binary)?;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0)?;
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "not a 64-bit little-endian ELF file");
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Err(odd());
    }
    let table = number(&header, 32, 8).ok_or_else(odd)?;
    let size = number(&header, 54, 2).ok_or_else(odd)?;
    let count = number(&header, 56, 2).ok_or_else(odd)?;
    for index in 0..count {
        let mut entry = [0; 56];
        let at = index.checked_mul(size).and_then(|at| at.checked_add(table)).ok_or_else(odd)?;
        file.read_exact_at(&mut entry, at)?;
        if number(&entry, 0, 4) != Some(PT_INTERP.into()) {
            continue;
        }
        let at = number(&entry, 8, 8).ok_or_else(odd)?;
        let length = number(&entry, 32, 8).filter(|length| *length < 4096).ok_or_else(odd)?;
        let mut path = vec![0; usize::try_from(length).map_err(|_| odd())?];
        file.read_exact_at(&mut path, at)?;
        let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
        return Ok(Some(PathBuf::from(OsStr::from_bytes(path))));
    }
    Ok(None)
}

/// A little-endian number of some bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let digits = bytes.get(at..at + length)?;
    Some(digits.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
