//! `fs.read_text`, `fs.list_dir` and `fs.write_text`: files of a workspace, and of nothing else.
//!
//! A path is opened beneath the root by the kernel, in one step: it is never looked at first and opened later,
//! so that nobody can change what it means in between. A link may be followed as long as it stays inside.

pub(crate) mod beneath;
mod list;
mod problem;
mod read;
mod write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_contract::{
    Behaviours, CostEffect, Declaration, Error, Mutation, Permission, Retry, SideEffect, Stability,
    Violations,
};

pub use problem::FsProblem;

use crate::workspace::Root;

/// The most that one call reads.
pub const MOST_READ: u32 = 4 * 1024 * 1024;

/// The most entries that one call lists.
pub const MOST_LISTED: u32 = 10_000;

/// The longest path.
pub const LONGEST_PATH: usize = 4_000;

const READ: &str = "fs.read_text";
const LIST: &str = "fs.list_dir";
const WRITE: &str = "fs.write_text";

/// What `fs.read_text` takes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadTextInput {
    /// The file, relative to the workspace.
    #[schemars(length(min = 1, max = LONGEST_PATH))]
    pub path: String,
    /// How much of it to read.
    #[serde(default = "default_max_bytes")]
    #[schemars(range(min = 1, max = MOST_READ))]
    pub max_bytes: u32,
}

/// What `fs.list_dir` takes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListDirInput {
    /// The folder, relative to the workspace.
    #[serde(default = "default_folder")]
    #[schemars(length(min = 1, max = LONGEST_PATH))]
    pub path: String,
    /// How many entries to give.
    #[serde(default = "default_max_entries")]
    #[schemars(range(min = 1, max = MOST_LISTED))]
    pub max_entries: u32,
}

/// What `fs.write_text` takes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteTextInput {
    /// The file, relative to the workspace. Folders that are missing are made.
    #[schemars(length(min = 1, max = LONGEST_PATH))]
    pub path: String,
    /// What the file is to hold.
    pub text: String,
    /// Replace the file if there is one.
    #[serde(default)]
    pub overwrite: bool,
}

fn default_max_bytes() -> u32 {
    20_000
}

fn default_folder() -> String {
    ".".to_owned()
}

fn default_max_entries() -> u32 {
    200
}

/// What `fs.read_text` gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FsText")]
pub struct Text {
    /// The file, as it was asked for.
    pub path: String,
    /// Its text, or the beginning of it.
    pub text: String,
    /// How large the file is.
    pub bytes: u64,
    /// Is there more than `text`? A larger `max_bytes` gives more.
    pub truncated: bool,
    /// The file is not all UTF-8: what could not be read is a replacement character.
    pub lossy: bool,
}

/// What `fs.list_dir` gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FsListing")]
pub struct Listing {
    /// The folder, as it was asked for.
    pub path: String,
    /// What is in it, sorted by the bytes of the names.
    pub entries: Vec<Entry>,
    /// How many entries the folder has.
    pub total: u64,
    /// Are there more than `entries`?
    pub truncated: bool,
}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FsEntry")]
pub struct Entry {
    /// The name.
    pub name: String,
    /// What has it.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// How large a file is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The name has bytes that cannot be shown: they are written as `\xNN`, and a backslash as two.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escaped: bool,
}

/// What a name in a folder stands for. A link is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "FsKind")]
pub enum Kind {
    /// A file.
    File,
    /// A folder.
    Dir,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// What `fs.write_text` gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FsWritten")]
pub struct Written {
    /// The file, as it was asked for.
    pub path: String,
    /// How large it is now.
    pub bytes: u64,
    /// Whether it is new.
    pub outcome: WriteOutcome,
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "FsWriteOutcome")]
pub enum WriteOutcome {
    /// There was no such file.
    Created,
    /// There was one, and it is gone.
    Replaced,
}

/// Declares `fs.read_text`.
pub fn read_text_declaration() -> Result<Declaration<ReadTextInput, Text>, Violations> {
    Declaration::new(READ, "The text of a file in the workspace; says when it is cut.")
        .stability(Stability::Stable)
        .permissions([Permission::FS, Permission::READ])
        .behaviours(Behaviours::NONE)
        .effects(SideEffect::None, CostEffect::None)
        .build()
}

/// Declares `fs.list_dir`.
pub fn list_dir_declaration() -> Result<Declaration<ListDirInput, Listing>, Violations> {
    Declaration::new(LIST, "What is in a folder of the workspace, sorted; says when it is cut.")
        .stability(Stability::Stable)
        .permissions([Permission::FS, Permission::READ])
        .behaviours(Behaviours::NONE)
        .effects(SideEffect::None, CostEffect::None)
        .build()
}

/// Declares `fs.write_text`.
pub fn write_text_declaration() -> Result<Declaration<WriteTextInput, Written>, Violations> {
    let behaviours = Behaviours { mutation: Mutation::UserState, ..Behaviours::NONE };
    Declaration::new(WRITE, "Writes a text file in the workspace, whole or not at all.")
        .stability(Stability::Stable)
        .permissions([Permission::FS, Permission::WRITE])
        .behaviours(behaviours)
        .effects(SideEffect::UserWrite, CostEffect::None)
        // Repeated without `overwrite`, it would report a conflict with its own first attempt.
        .retry(Retry::Never)
        .build()
}

/// Does the work of `fs.read_text`.
pub async fn read_text(root: &Root, input: ReadTextInput) -> Result<Text, Error> {
    let root = root.clone();
    in_thread(READ, move || read::read(&root, input)).await
}

/// Does the work of `fs.list_dir`.
pub async fn list_dir(root: &Root, input: ListDirInput) -> Result<Listing, Error> {
    let root = root.clone();
    in_thread(LIST, move || list::list(&root, input)).await
}

/// Does the work of `fs.write_text`. Once it has begun it goes on to its end, even if nobody waits for it.
pub async fn write_text(root: &Root, input: WriteTextInput) -> Result<Written, Error> {
    let turn = root.turn().await;
    in_thread(WRITE, move || write::write(turn, input)).await
}

/// File systems block; the runtime's own threads do not wait for them.
async fn in_thread<T: Send + 'static>(
    tool: &'static str,
    work: impl FnOnce() -> Result<T, FsProblem> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.unwrap_or_else(|error| Err(FsProblem::Stopped(error.to_string())));
    done.map_err(|problem| problem.error(tool))
}

#[cfg(test)]
#[path = "fs_tests.rs"]
mod tests;
