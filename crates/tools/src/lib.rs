//! The tools that come with Tollgate, each declared next to the function that does its work.
//!
//! A function here takes what it needs as arguments (the manifest, the time), so that it can be tested
//! without a gate. Whoever runs it passes them in.

pub mod manifest;
pub mod system;

use tollgate_contract::{Manifest, ToolDeclaration, Violations};

/// The manifest of the built-in tools.
pub fn built_in() -> Result<Manifest, Violations> {
    Manifest::from_declarations(declarations()?)
}

/// What this pack declares.
pub fn declarations() -> Result<Vec<ToolDeclaration>, Violations> {
    Ok(vec![
        manifest::list_declaration()?.erase(),
        manifest::get_declaration()?.erase(),
        system::time_declaration()?.erase(),
    ])
}
