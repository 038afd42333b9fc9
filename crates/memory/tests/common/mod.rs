//! What the tests share.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::PathBuf;

use tempfile::TempDir;
use tollgate_contract::id::MemoryId;
use tollgate_memory::{Found, Limits, Memory, NewRecord, Query};

/// A memory in a folder of its own.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) memory: Memory,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let memory = Memory::open_with(&folder.path().join("memory.db"), limits).unwrap();
        Self { folder, memory }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("memory.db")
    }

    /// Adds texts to a session, numbered from `first`.
    pub(crate) fn add(&self, session: &str, first: u64, texts: &[&str]) -> Vec<MemoryId> {
        let records: Vec<NewRecord> =
            (first..).zip(texts).map(|(number, text)| record(number, text)).collect();
        self.memory.add(session, &records).unwrap().ids
    }

    pub(crate) fn find(&self, session: &str, text: &str) -> Vec<Found> {
        let query = Query { session: Some(session), text, limit: 10, ..Query::default() };
        self.memory.search(&query).unwrap()
    }

    /// The texts that are found, best first.
    pub(crate) fn texts(&self, session: &str, text: &str) -> Vec<String> {
        self.find(session, text).into_iter().map(|found| found.text).collect()
    }
}

/// The id with this number.
pub(crate) fn id(number: u64) -> MemoryId {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&number.to_be_bytes());
    MemoryId::from_parts(1_700_000_000_000 + number, random)
}

/// A record without tags.
pub(crate) fn record(number: u64, text: &str) -> NewRecord {
    tagged(number, text, &[])
}

pub(crate) fn tagged(number: u64, text: &str, tags: &[&str]) -> NewRecord {
    NewRecord {
        id: id(number),
        text: text.to_owned(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        turn: number,
        at_ms: 1_700_000_000_000 + i64::try_from(number).unwrap(),
    }
}
