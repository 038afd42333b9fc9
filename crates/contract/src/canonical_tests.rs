use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;

/// RFC 8785, section 3.2: the sample object, its canonical form, and that form's bytes.
#[test]
fn the_sample_of_rfc_8785_section_3_2() {
    let sample = br#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let expected = [
        "7b 22 6c 69 74 65 72 61 6c 73 22 3a 5b 6e 75 6c 6c 2c 74 72",
        "75 65 2c 66 61 6c 73 65 5d 2c 22 6e 75 6d 62 65 72 73 22 3a",
        "5b 33 33 33 33 33 33 33 33 33 2e 33 33 33 33 33 33 33 2c 31",
        "65 2b 33 30 2c 34 2e 35 2c 30 2e 30 30 32 2c 31 65 2d 32 37",
        "5d 2c 22 73 74 72 69 6e 67 22 3a 22 e2 82 ac 24 5c 75 30 30",
        "30 66 5c 6e 41 27 42 5c 22 5c 5c 5c 5c 5c 22 2f 22 7d",
    ]
    .join(" ");
    let ours = canonical(&json::parse(sample).unwrap()).unwrap();
    let hex: Vec<String> = ours.bytes().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex.join(" "), expected);
}

/// RFC 8785, section 3.2.3: keys are sorted by their UTF-16 code units.
#[test]
fn the_sort_order_of_rfc_8785_section_3_2_3() {
    let sample = r#"{
        "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let form = canonical(&json::parse(sample.as_bytes()).unwrap()).unwrap();
    let order = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"];
    let at: Vec<usize> = order.iter().map(|word| form.find(word).unwrap()).collect();
    assert!(at.is_sorted(), "{form}");
}

/// RFC 8785, appendix B: doubles by their bits, and how they are written.
#[test]
fn the_numbers_of_rfc_8785_appendix_b() {
    let table: [(u64, &str); 24] = [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, expected) in table {
        assert_eq!(written(&json!(f64::from_bits(bits))), expected, "{bits:016x}");
    }
}

#[test]
fn null_and_array_order_are_kept() {
    let value = json!({"b": [3, 1, 2, null], "a": null});
    assert_eq!(canonical(&value).unwrap(), r#"{"a":null,"b":[3,1,2,null]}"#);
}

#[test]
fn the_hash_is_sha_256_over_the_redacted_form() {
    // printf '{"a":1}' | sha256sum
    let plain = input_hash(&json!({"a": 1})).unwrap();
    assert_eq!(
        plain.to_string(),
        "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
    );
    let secret = |value: &str| input_hash(&json!({"password": value})).unwrap();
    assert_eq!(secret("hunter2"), secret("hunter3"));
    let redacted = redact::redacted(&json!({"password": "hunter2"})).into_owned();
    assert_eq!(input_hash(&redacted).unwrap(), secret("hunter2"));
}

#[test]
fn a_hash_is_read_back_as_written() {
    let hash = input_hash(&json!(null)).unwrap();
    assert_eq!(InputHash::parse(&hash.to_string()), Some(hash));
    assert_eq!(InputHash::parse(&hash.to_string().to_uppercase()), None);
    assert_eq!(InputHash::parse("00"), None);
}

#[test]
fn an_integer_that_would_be_merged_has_no_canonical_form() {
    let error = canonical(&json!({"id": [u64::MAX]})).unwrap_err();
    assert_eq!(error.pointer(), "/id/0");
    assert!(input_hash(&json!({"password": u64::MAX})).is_err());
}

/// Any JSON value that a door accepts.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-json::MAX_SAFE_INTEGER..=json::MAX_SAFE_INTEGER).prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite, and no unsafe integer", |f| f.is_finite()
                && json::check(&json!(f)).is_ok())
            .prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec(("\\PC{0,6}", inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// The same value with the keys of every object in reverse order.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(reversed).collect(),
        Value::Object(map) => {
            Value::Object(map.iter().rev().map(|(k, v)| (k.clone(), reversed(v))).collect())
        }
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn canonicalisation_is_idempotent(value in any_json()) {
        let once = canonical(&value).unwrap();
        let twice = canonical(&json::parse(once.as_bytes()).unwrap()).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn canonicalisation_does_not_depend_on_key_order(value in any_json()) {
        let other = reversed(&value);
        prop_assert_eq!(canonical(&value).unwrap(), canonical(&other).unwrap());
        prop_assert_eq!(input_hash(&value).unwrap(), input_hash(&other).unwrap());
    }
}
