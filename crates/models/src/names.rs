//! Names of tools on the wire. Ours have dots; servers take letters, digits, `_` and `-`, up to 64 of them.

use std::collections::HashMap;

use crate::chat::ToolSpec;

/// The longest name that servers take.
const LONGEST: usize = 64;

/// How the tools of one request are called on the wire.
#[derive(Debug, Default)]
pub(crate) struct Names {
    to_wire: HashMap<String, String>,
    from_wire: HashMap<String, String>,
}

impl Names {
    /// Names for what is offered, each another.
    pub(crate) fn new(tools: &[ToolSpec]) -> Self {
        let mut names = Self::default();
        for tool in tools {
            if names.to_wire.contains_key(&tool.name) {
                continue;
            }
            let plain = plain(&tool.name);
            let mut wire = plain.clone();
            let mut number = 1;
            while names.from_wire.contains_key(&wire) {
                number += 1;
                let suffix = format!("_{number}");
                let kept = LONGEST.saturating_sub(suffix.len());
                wire = plain.chars().take(kept).chain(suffix.chars()).collect();
            }
            names.to_wire.insert(tool.name.clone(), wire.clone());
            names.from_wire.insert(wire, tool.name.clone());
        }
        names
    }

    /// What a tool is called on the wire, offered or not.
    pub(crate) fn wire(&self, name: &str) -> String {
        self.to_wire.get(name).cloned().unwrap_or_else(|| plain(name))
    }

    /// The tool that a server means. What was not offered stays as it is.
    pub(crate) fn ours(&self, wire: &str) -> String {
        self.from_wire.get(wire).cloned().unwrap_or_else(|| wire.to_owned())
    }
}

fn plain(name: &str) -> String {
    let mut wire = String::with_capacity(name.len() + 2);
    for c in name.chars() {
        match c {
            '.' => wire.push_str("__"),
            c if c.is_ascii_alphanumeric() || c == '-' || c == '_' => wire.push(c),
            _ => wire.push('_'),
        }
    }
    // All of it is ASCII by now.
    wire.truncate(LONGEST);
    if wire.is_empty() { "_".to_owned() } else { wire }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
