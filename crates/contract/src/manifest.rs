//! The strict contract manifest: the one source of what can be called, in exactly the shape that
//! `GET /api/contracts/tools` serves.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    declare::ToolDeclaration,
    effect::{CostEffect, Retry, Risk, SideEffect, Stability, Status, words},
    error::UnknownTool,
    invariant::{self, Violations},
    name::{ToolName, successor},
    permission::Permission,
    read,
    text::nearest,
};

/// The version of the manifest's format.
pub const SCHEMA_VERSION: &str = "0.3.0-draft";

/// One tool's contract. Fields stand in the order of the wire format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContractTool {
    /// Canonical dotted name.
    pub name: ToolName,
    /// Where the entry stands.
    pub status: Status,
    /// How settled it is.
    pub stability: Stability,
    /// Does it need an account?
    pub auth_required: bool,
    /// What a policy must allow.
    pub permissions: Vec<Permission>,
    /// Who may call it without a key.
    pub access: Access,
    /// What it changes.
    pub side_effect: SideEffect,
    /// What it uses up.
    pub cost_effect: CostEffect,
    /// Declared risks.
    pub risk: Vec<Risk>,
    /// Name of the output's schema.
    pub schema: String,
    /// JSON Schema of the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// JSON Schema of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The resource path that serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpBinding>,
    /// The SDK method that wraps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sdk: Option<SdkBinding>,
    /// How agents meet it.
    pub agent: AgentBinding,
    /// What its calls emit.
    pub trace_events: Vec<TraceEvent>,
    /// How its calls are replayed.
    pub replay: Replay,
    /// May a call be repeated when its outcome is unknown? Absent: see [`ContractTool::retry`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// One sentence for people and models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Who may call a tool without a key. A positive allowlist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Access {
    /// May the SDK surface call it without a key?
    pub anonymous_allowed: bool,
}

words! {
    /// Methods of resource paths.
    HttpMethod {
        /// `GET`
        Get = "GET",
        /// `POST`
        Post = "POST",
        /// `PUT`
        Put = "PUT",
        /// `PATCH`
        Patch = "PATCH",
        /// `DELETE`
        Delete = "DELETE",
    }
}

/// A resource path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpBinding {
    /// Method.
    pub method: HttpMethod,
    /// Path, from `/`.
    pub path: String,
}

/// An SDK method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SdkBinding {
    /// Package.
    pub package: String,
    /// How a call is written there.
    pub method: String,
}

/// How agents meet a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentBinding {
    /// May an agent call it at all?
    pub callable: bool,
    /// Is it offered without being enabled by name?
    pub default_enabled: bool,
    /// The name agents use: the canonical one.
    pub name: ToolName,
    /// The underscore form for hosts that reject dots. Known to the MCP door only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compat_name: Option<String>,
}

words! {
    /// What a call emits, as a manifest names it.
    TraceEvent {
        /// The executor is about to start.
        Started = "tool.call.started",
        /// It gave a result.
        Completed = "tool.call.completed",
        /// It failed.
        Failed = "tool.call.failed",
    }
}

words! {
    /// How a recorded call is found again.
    ReplayMatch {
        /// By canonical tool name and input hash.
        ToolAndInputHash = "tool+inputHash",
    }
}

/// How a tool's calls are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// May a recorded result stand in for a call?
    pub replayable: bool,
    /// How it is found.
    #[serde(rename = "match")]
    pub by: ReplayMatch,
}

impl ContractTool {
    /// Does it need the permission `wanted`?
    pub fn needs(&self, wanted: &Permission) -> bool {
        self.permissions.contains(wanted)
    }

    /// May a call be repeated when its outcome is unknown?
    pub fn retry(&self) -> Retry {
        self.retry.unwrap_or_else(|| Retry::default_for(self.side_effect))
    }

    /// The declared risk that forbids every call, if there is one.
    pub fn forbidden_risk(&self) -> Option<&Risk> {
        self.risk.iter().find(|risk| risk.is_forbidden())
    }
}

words! {
    /// Which entries a manifest shows.
    ManifestMode {
        /// Only what works.
        Implemented = "implemented",
        /// Also what is planned, withdrawn, forbidden or held back. For design tools.
        Review = "review",
    }
}

/// A manifest that holds every invariant. It can only be made by checking one.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    tools: Vec<ContractTool>,
    by_name: HashMap<ToolName, usize>,
}

/// A manifest as it is served.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Manifest")]
pub struct ManifestDocument<'a> {
    /// Always [`SCHEMA_VERSION`].
    pub schema_version: &'static str,
    /// Which entries are shown.
    pub mode: ManifestMode,
    /// The entries.
    pub tools: Vec<&'a ContractTool>,
}

impl Manifest {
    /// Checks what packs declare and makes one manifest of it.
    pub fn from_declarations(
        declarations: impl IntoIterator<Item = ToolDeclaration>,
    ) -> Result<Self, Violations> {
        let declarations: Vec<ToolDeclaration> = declarations.into_iter().collect();
        invariant::check_declarations(&declarations)?;
        Ok(Self::checked(declarations.into_iter().map(|declared| declared.tool).collect()))
    }

    /// Reads and checks a manifest in its wire format.
    pub fn parse(bytes: &[u8]) -> Result<Self, Violations> {
        read::read_manifest(bytes).map(Self::checked)
    }

    fn checked(tools: Vec<ContractTool>) -> Self {
        let by_name =
            tools.iter().enumerate().map(|(index, tool)| (tool.name.clone(), index)).collect();
        Self { tools, by_name }
    }

    /// Every entry, whatever its status.
    pub fn entries(&self) -> &[ContractTool] {
        &self.tools
    }

    /// The manifest as it is served in `mode`.
    pub fn document(&self, mode: ManifestMode) -> ManifestDocument<'_> {
        let shown = |tool: &&ContractTool| {
            mode == ManifestMode::Review || tool.status == Status::Implemented
        };
        ManifestDocument {
            schema_version: SCHEMA_VERSION,
            mode,
            tools: self.tools.iter().filter(shown).collect(),
        }
    }

    /// The entry with this canonical name, whatever its status. Nothing but a canonical name
    /// resolves: no legacy name, no alias, no name of a compatibility inventory.
    pub fn resolve(&self, requested: &str) -> Result<&ContractTool, UnknownTool> {
        let found = self.by_name.get(requested).and_then(|index| self.tools.get(*index));
        found.ok_or_else(|| UnknownTool::new(requested, self.suggestion(requested)))
    }

    /// The active tool that was probably meant.
    fn suggestion(&self, requested: &str) -> Option<ToolName> {
        let active = || self.tools.iter().filter(|tool| tool.status == Status::Implemented);
        let renamed = successor(requested);
        let meant = |tool: &&ContractTool| {
            renamed == Some(tool.name.as_str()) || tool.name.is_written_as(requested)
        };
        if let Some(tool) = active().find(meant) {
            return Some(tool.name.clone());
        }
        let near = nearest(requested, active().map(|tool| tool.name.as_str()))?;
        self.by_name.get_key_value(near).map(|(name, _)| name.clone())
    }
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
