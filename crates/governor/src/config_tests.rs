use super::*;

#[test]
fn a_length_of_time_is_a_number_and_a_unit() {
    for (text, ms) in [
        ("500ms", 500),
        ("90s", 90_000),
        ("15m", 900_000),
        ("12h", 43_200_000),
        ("7d", 604_800_000),
    ] {
        assert_eq!(duration(text), Ok(ms));
    }
    for text in [
        "",
        "5",
        "s",
        "0s",
        "-1s",
        "1.5h",
        "5 s",
        "1w",
        "400d",
        "99999999999999999999s",
        "5sm",
        "é",
    ] {
        assert!(duration(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_not_said_is_as_documented() {
    let config: GovernorConfig = serde_json::from_str("{}").unwrap();
    assert_eq!(config.clone().or_usual(), GovernorConfig::usual());
    assert_eq!(config.governor, Settings::default());
    let written = serde_json::to_string(&GovernorConfig::usual()).unwrap();
    assert_eq!(serde_json::from_str::<GovernorConfig>(&written).unwrap(), GovernorConfig::usual());
}
