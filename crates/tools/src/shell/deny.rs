//! The deny list: words that a command may not contain, wherever they stand.
//!
//! A *word* of a command is the longest run of letters, digits, `_`, `-` and `.` in one of its arguments, after
//! the quotes are gone, without `-` and `.` at its ends. So `/usr/bin/rm`, `--rm` and `os.system('rm x')` contain the word
//! `rm`, and `rm.txt`, `charm` and `os.rm` do not. An entry that ends in `*` covers every word that begins with what is before
//! it. An entry with other characters in it is looked for as it stands. Case counts.
//!
//! This is a courtesy that says early what would not work anyway. What holds is the sandbox.

/// What is denied unless the configuration says otherwise.
pub(super) const DEFAULT: &[&str] = &[
    "sudo",
    "su",
    "doas",
    "pkexec",
    "rm",
    "rmdir",
    "shred",
    "mkfs",
    "mkfs.*",
    "mkswap",
    "dd",
    "fdisk",
    "parted",
    "wipefs",
    "shutdown",
    "reboot",
    "poweroff",
    "halt",
    "mount",
    "umount",
    "chroot",
    "unshare",
    "nsenter",
    "insmod",
    "rmmod",
    "modprobe",
    "kill",
    "killall",
    "pkill",
    "chown",
    "crontab",
    "systemctl",
    "curl",
    "wget",
    "ssh",
    "scp",
    "nc",
    "ncat",
    "telnet",
    ":(){",
];

/// The first entry of the list that one of the arguments contains.
pub(super) fn find<'a>(list: &'a [String], arguments: &[String]) -> Option<&'a str> {
    list.iter()
        .map(String::as_str)
        .filter(|entry| !entry.is_empty())
        .find(|entry| arguments.iter().any(|argument| contains(argument, entry)))
}

fn contains(argument: &str, entry: &str) -> bool {
    let (stem, open) = match entry.strip_suffix('*') {
        Some(stem) => (stem, true),
        None => (entry, false),
    };
    if !stem.chars().all(in_word) {
        return argument.contains(entry);
    }
    argument
        .split(|c| !in_word(c))
        .map(|word| word.trim_matches(['-', '.']))
        .any(|word| word == entry || (open && word.starts_with(stem)))
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

#[cfg(test)]
#[path = "deny_tests.rs"]
mod tests;
