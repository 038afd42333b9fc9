//! The checks on raw bytes, on damaged documents, and on text made of the pieces that matter.

#![cfg(test)]

use proptest::prelude::*;
use tollgate_fuzz_checks::{
    check_canonical, check_extractor, check_manifest, check_policy, check_redaction,
    check_state_patch,
};

const DOCUMENTS: [&str; 8] = [
    include_str!("../../../examples/answer.txt"),
    include_str!("../../../examples/notes.ndjson"),
    include_str!("../../../examples/markets.json"),
    include_str!("../../../examples/order.json"),
    include_str!("../../../examples/policy.toml"),
    include_str!("../../../spec/redaction.json"),
    r#"{"server": {"deny": ["shell"], "ask": [{"tool": "fs.*", "input": {"pointer": "/a", "above": 1}}]}, "policies": {"a": {"trade": {"maxQuantity": 1}}}}"#,
    r#"{"n": [1, -2.5e3, 1e21, 9007199254740991], "s": "\u20ac\ud83d\ude00 tg_key_abcdefgh password=x", "o": {"": null}}"#,
];

/// A document with a few stretches cut out, doubled or overwritten.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<prop::sample::Index>(), 0..20_usize, 0..4_u8, any::<u8>());
    (prop::sample::select(&DOCUMENTS), proptest::collection::vec(edit, 0..4)).prop_map(
        |(document, edits)| {
            let mut bytes = document.as_bytes().to_vec();
            for (at, length, kind, byte) in edits {
                if bytes.is_empty() {
                    break;
                }
                let from = at.index(bytes.len());
                let to = (from + length).min(bytes.len());
                match kind {
                    0 => drop(bytes.drain(from..to)),
                    1 => {
                        let piece = bytes[from..to].to_vec();
                        bytes.splice(from..from, piece);
                    }
                    2 => bytes[from] = byte,
                    _ => bytes.insert(from, b"{}[],:\"\\0-e.tn"[usize::from(byte) % 14]),
                }
            }
            bytes
        },
    )
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        proptest::collection::vec(
            prop::sample::select(b"{}[]\",:\\u0123eE+-.truefalsn \n=_/@tg_key".to_vec()),
            0..120
        ),
        damaged(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn canonical_json_of_any_bytes(bytes in any_bytes()) {
        check_canonical(&bytes);
    }

    #[test]
    fn redaction_of_any_bytes(bytes in any_bytes()) {
        check_redaction(&bytes);
    }

    #[test]
    fn manifests_of_any_bytes(bytes in any_bytes()) {
        check_manifest(&bytes);
    }

    #[test]
    fn policies_of_any_bytes(bytes in any_bytes()) {
        check_policy(&bytes);
    }

    #[test]
    fn answers_of_any_bytes(bytes in any_bytes()) {
        check_extractor(&bytes);
    }

    #[test]
    fn state_patches_of_any_bytes(bytes in any_bytes()) {
        check_state_patch(&bytes);
    }
}

#[test]
fn whole_documents_pass_every_check() {
    for document in DOCUMENTS {
        check_canonical(document.as_bytes());
        check_redaction(document.as_bytes());
        check_manifest(document.as_bytes());
        check_policy(document.as_bytes());
        check_extractor(document.as_bytes());
        check_state_patch(document.as_bytes());
    }
}
