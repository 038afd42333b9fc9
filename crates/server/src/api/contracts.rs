//! The contracts: the strict manifest, and the compatibility inventory beside it.

use axum::{
    http::{Method, StatusCode},
    response::Response,
};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_contract::{
    ContractTool, Error, Manifest, ManifestMode, manifest::ManifestDocument, name::LEGACY_NAMES,
};

use crate::{
    endpoint::{Access, Ask, Endpoint, Nothing, endpoint},
    reply::{Failed, Reply, json},
};

/// The manifest as it is served to whoever has no key, written once.
pub(crate) struct ServedManifest {
    implemented: Bytes,
    review: Bytes,
}

impl ServedManifest {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        let written =
            |mode| Bytes::from(serde_json::to_vec(&manifest.document(mode)).unwrap_or_default());
        Self {
            implemented: written(ManifestMode::Implemented),
            review: written(ManifestMode::Review),
        }
    }

    fn in_mode(&self, mode: ManifestMode) -> Bytes {
        match mode {
            ManifestMode::Implemented => self.implemented.clone(),
            ManifestMode::Review => self.review.clone(),
        }
    }
}

/// Which entries of the manifest.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Mode {
    /// `review` also shows entries that are not active.
    #[serde(default)]
    mode: Option<ManifestMode>,
}

/// One contract.
#[derive(Serialize, JsonSchema)]
struct One {
    /// The contract.
    tool: ContractTool,
}

/// The broad compatibility inventory. Nothing resolves from it.
#[derive(Serialize, JsonSchema)]
struct Inventory {
    /// Names that other systems use, and what they are called here.
    tools: Vec<Listed>,
}

/// One entry of the inventory.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Listed {
    /// The name that other systems use. It is not canonical, and calls nothing.
    name: String,
    /// What it is called in the contract.
    canonical_name: String,
    /// Is there such a tool here?
    available: bool,
    /// What it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        endpoint(
            Method::GET,
            "/api/contracts/tools",
            "listContracts",
            "The strict contract manifest",
            Access::Local,
        )
        .gives::<ManifestDocument<'static>>(200, "The manifest")
        .serve_raw(list),
        endpoint(
            Method::GET,
            "/api/contracts/tools/{name}",
            "getContract",
            "The contract of one tool",
            Access::Local,
        )
        .serve(200, "The contract", get),
        endpoint(
            Method::GET,
            "/api/tools",
            "listCompatibility",
            "The compatibility inventory: other names, and the canonical ones",
            Access::Local,
        )
        .serve(200, "The inventory", inventory),
    ]
}

/// The manifest: as it is for everyone, or what the caller's key may see.
async fn list(ask: Ask<Mode, Nothing>) -> Result<Response, Failed> {
    let mode = ask.query.mode.unwrap_or(ManifestMode::Implemented);
    let Some(layers) = ask.principal.layers() else {
        return Ok(json(StatusCode::OK, ask.app.manifest.in_mode(mode)));
    };
    let mut document = ask.app.gate.manifest().document(mode);
    document.tools.retain(|tool| layers.shows(tool));
    Ok(Reply::ok(document).response())
}

async fn get(ask: Ask<Nothing, Nothing>) -> Result<Reply<One>, Failed> {
    let tool = ask.app.gate.manifest().resolve(ask.part("name")).map_err(Error::from)?;
    let is_shown = ask.principal.layers().is_none_or(|layers| layers.shows(tool));
    if !is_shown {
        let unknown = tollgate_contract::error::UnknownTool::new(ask.part("name"), None);
        return Err(Error::from(unknown).into());
    }
    Ok(Reply::ok(One { tool: tool.clone() }))
}

async fn inventory(ask: Ask<Nothing, Nothing>) -> Result<Reply<Inventory>, Failed> {
    let manifest = ask.app.gate.manifest();
    let mut document = manifest.document(ManifestMode::Implemented);
    let layers = ask.principal.layers();
    document.tools.retain(|tool| layers.is_none_or(|layers| layers.shows(tool)));
    let mut tools: Vec<Listed> = document
        .tools
        .iter()
        .map(|tool| Listed {
            name: tool.agent.compat_name.clone().unwrap_or_else(|| tool.name.underscored()),
            canonical_name: tool.name.to_string(),
            available: true,
            description: tool.description.clone(),
        })
        .collect();
    tools.extend(LEGACY_NAMES.iter().map(|(old, new)| Listed {
        name: (*old).to_owned(),
        canonical_name: (*new).to_owned(),
        available: document.tools.iter().any(|tool| tool.name.as_str() == *new),
        description: None,
    }));
    Ok(Reply::ok(Inventory { tools }))
}
