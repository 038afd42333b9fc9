//! `manifest.list` and `manifest.get`: the contract, to look at. Free for everyone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_contract::{
    Behaviours, ContractTool, CostEffect, Declaration, Error, Manifest, ManifestMode, Permission,
    SideEffect, Stability, Violations,
    manifest::{HttpMethod, ManifestDocument},
};

/// What `manifest.list` takes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListInput {
    /// Also show what is not active.
    #[serde(default)]
    pub mode: Option<ManifestMode>,
}

/// What `manifest.get` takes.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetInput {
    /// The canonical name of a tool.
    pub name: String,
}

/// What `manifest.get` gives.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ManifestEntry")]
pub struct Entry<'a> {
    /// The contract.
    pub tool: &'a ContractTool,
}

/// Declares `manifest.list`.
pub fn list_declaration() -> Result<Declaration<ListInput, ManifestDocument<'static>>, Violations> {
    Declaration::new("manifest.list", "The contracts of all tools that can be called.")
        .stability(Stability::Stable)
        .anonymous()
        .permissions([Permission::READ_PUBLIC])
        .behaviours(Behaviours::NONE)
        .effects(SideEffect::None, CostEffect::None)
        .http(HttpMethod::Get, "/api/contracts/tools")
        .sdk("tollgate", "gate.manifest.list()")
        .build()
}

/// Declares `manifest.get`.
pub fn get_declaration() -> Result<Declaration<GetInput, Entry<'static>>, Violations> {
    Declaration::new("manifest.get", "The contract of one tool, by its canonical name.")
        .stability(Stability::Stable)
        .anonymous()
        .permissions([Permission::READ_PUBLIC])
        .behaviours(Behaviours::NONE)
        .effects(SideEffect::None, CostEffect::None)
        .http(HttpMethod::Get, "/api/contracts/tools/{name}")
        .sdk("tollgate", "gate.manifest.get(name)")
        .build()
}

/// Does the work of `manifest.list`.
pub fn list<'a>(manifest: &'a Manifest, input: &ListInput) -> ManifestDocument<'a> {
    manifest.document(input.mode.unwrap_or(ManifestMode::Implemented))
}

/// Does the work of `manifest.get`.
pub fn get<'a>(manifest: &'a Manifest, input: &GetInput) -> Result<Entry<'a>, Error> {
    Ok(Entry { tool: manifest.resolve(&input.name)? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tollgate_contract::schema::Schema;

    use super::*;

    #[test]
    fn what_the_tools_give_fits_what_they_declare() {
        let manifest = crate::built_in().unwrap();
        let output_of = |name: &str| {
            Schema::compile(manifest.resolve(name).unwrap().output_schema.as_ref().unwrap())
                .unwrap()
        };
        let listed = serde_json::to_value(list(&manifest, &ListInput::default())).unwrap();
        assert_eq!(output_of("manifest.list").problems(&listed), []);
        let entry = get(&manifest, &GetInput { name: "system.time".to_owned() }).unwrap();
        assert_eq!(output_of("manifest.get").problems(&serde_json::to_value(entry).unwrap()), []);
    }

    #[test]
    fn a_name_that_is_no_tool_is_an_error_that_names_the_nearest() {
        let manifest = crate::built_in().unwrap();
        let error = get(&manifest, &GetInput { name: "sytem.time".to_owned() }).unwrap_err();
        assert_eq!(
            error.details(),
            json!({"requested": "sytem.time", "didYouMean": "system.time"})
        );
    }

    #[test]
    fn inspecting_the_manifest_needs_no_key_and_has_no_effect() {
        let manifest = crate::built_in().unwrap();
        for name in ["manifest.list", "manifest.get"] {
            let tool = manifest.resolve(name).unwrap();
            assert!(tool.access.anonymous_allowed, "{name}");
            assert_eq!((tool.side_effect, tool.cost_effect), (SideEffect::None, CostEffect::None));
        }
    }
}
