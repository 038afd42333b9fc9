use proptest::prelude::*;

use super::*;

#[test]
fn an_id_says_what_it_names() {
    let id = CallId::from_parts(1_700_000_000_000, [7; 10]);
    assert_eq!(id.to_string(), "call_018bcfe5680077078707070707070707");
    assert_eq!(id.unix_ms(), 1_700_000_000_000);
    assert_eq!(serde_json::to_value(id).unwrap(), id.to_string());
}

#[test]
fn an_id_of_another_kind_or_shape_is_refused() {
    let id = CallId::from_parts(1, [0; 10]).to_string();
    assert!(RunId::parse(&id).is_err());
    assert!(CallId::parse(&id.to_uppercase()).is_err());
    assert!(CallId::parse(id.get(..id.len() - 1).unwrap()).is_err());
    assert!(CallId::parse(&format!("{id}0")).is_err());
    // A random (version 4) UUID is no id of ours.
    assert!(CallId::parse("call_00000000000040008000000000000000").is_err());
    assert_eq!(
        CallId::parse("nope").unwrap_err().to_string(),
        "`nope` is not an id as the gate gives them: `call_` followed by a UUID of version 7 in 32 lower-case hex digits"
    );
}

proptest! {
    #[test]
    fn ids_are_read_back_and_sort_by_time(early in 0_u64..1 << 47, gap in 1_u64..1 << 40, a: [u8; 10], b: [u8; 10]) {
        let (first, second) = (HoldId::from_parts(early, a), HoldId::from_parts(early + gap, b));
        prop_assert_eq!(HoldId::parse(&first.to_string()).unwrap(), first);
        prop_assert!(first < second && first.to_string() < second.to_string());
        prop_assert_eq!(first.unix_ms(), early);
    }
}
