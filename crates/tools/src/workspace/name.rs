//! The folder of a session, named so that a person recognises it and no two sessions share one.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use tollgate_contract::text::hex;

/// The longest name that is written out. File systems end at 255.
const LONGEST: usize = 120;

/// How much of a longer one is shown before its hash.
const HEAD: usize = 60;

/// The name of the folder for `session`.
///
/// Lower-case letters, digits, `-`, `_` and dots inside stay; every other byte, upper-case letters too, becomes
/// `%` and two hex digits, so that two names never meet, not even where file names have no case. A long name is cut
/// and ends with `~` and its hash; an empty one is `~` alone, which no other name can become.
pub fn folder_name(session: &str) -> String {
    if session.is_empty() {
        return "~".to_owned();
    }
    let mut folder = String::new();
    let mut head = 0;
    for (at, byte) in session.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => folder.push(char::from(byte)),
            // A dot in front would hide the folder, or name another.
            b'.' if at > 0 => folder.push('.'),
            // Writing to a string does not fail.
            _ => _ = write!(folder, "%{byte:02x}"),
        }
        if folder.len() <= HEAD {
            head = folder.len();
        }
    }
    if folder.len() <= LONGEST {
        return folder;
    }
    let hash = Sha256::digest(session.as_bytes());
    format!("{}~{}", folder.get(..head).unwrap_or_default(), hex(&hash))
}
