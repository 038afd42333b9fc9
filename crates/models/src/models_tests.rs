use super::*;

fn configs(names: &[&str]) -> BTreeMap<String, ModelConfig> {
    let config = |name: &&str| ((*name).to_owned(), ModelConfig::at("http://127.0.0.1:1"));
    names.iter().map(config).collect()
}

fn named(models: &Models, name: Option<&str>, session: Option<&str>) -> Result<String, String> {
    let found = models.get(name, session);
    found.map(|model| model.name().to_owned()).map_err(|error| error.to_string())
}

#[test]
fn the_only_model_is_the_default_and_one_of_several_must_be_named() {
    let one = Models::new(configs(&["a"]), None).unwrap();
    assert_eq!(named(&one, None, None).unwrap(), "a");
    let two = Models::new(configs(&["small", "large"]), None).unwrap();
    let error = named(&two, None, None).unwrap_err();
    assert_eq!(error, "no model is named and there is no default; name one of large, small");
    let two = Models::new(configs(&["small", "large"]), Some("small".to_owned())).unwrap();
    assert_eq!(named(&two, None, Some("s")).unwrap(), "small");
    assert_eq!(two.names(), ["large", "small"]);
    let none = Models::new(BTreeMap::new(), None).unwrap();
    let error = named(&none, None, None).unwrap_err();
    assert!(error.ends_with("configure one under `[models.NAME]`"), "{error}");
}

#[test]
fn a_name_that_is_wrong_has_its_nearest_told() {
    let models = Models::new(configs(&["small", "large"]), None).unwrap();
    let error = |name: &str| named(&models, Some(name), None).unwrap_err();
    assert_eq!(error("smal"), "there is no model `smal`; did you mean `small`?");
    assert_eq!(error("gpt"), "there is no model `gpt`; there are large, small");
    assert_eq!(
        error(&"x".repeat(500)).len(),
        "there is no model ``; there are large, small".len() + 83
    );
    let none = Models::new(BTreeMap::new(), None).unwrap();
    let error = named(&none, Some("x"), None).unwrap_err();
    assert_eq!(error, "there is no model `x`; none is configured: add one under `[models.NAME]`");
    let bad = Models::new(configs(&["small"]), Some("smal".to_owned())).err().unwrap();
    assert_eq!(bad.setting, "default");
    assert!(bad.to_string().contains("did you mean `small`?"), "{bad}");
}

#[test]
fn a_model_of_a_session_is_found_there_and_nowhere_else() {
    let models = Models::new(BTreeMap::new(), None).unwrap();
    let config = || ModelConfig::at("http://127.0.0.1:2");
    models.set_for_session("s", "first", config()).unwrap();
    models.set_for_session("s", "own", config()).unwrap();
    assert_eq!(named(&models, Some("own"), Some("s")).unwrap(), "own");
    assert_eq!(named(&models, None, Some("s")).unwrap(), "own", "the newest, without a default");
    assert!(named(&models, Some("own"), Some("t")).is_err());
    assert!(named(&models, Some("own"), None).is_err());
    let error = named(&models, Some("owm"), Some("t")).unwrap_err();
    assert!(!error.contains("own"), "others do not learn of it: {error}");
    // Its own name comes before a configured one.
    models.replace(configs(&["own"]), None).unwrap();
    let url = |session| models.get(Some("own"), session).unwrap().config().url.clone().unwrap();
    assert_eq!(url(Some("s")), "http://127.0.0.1:2/v1");
    assert_eq!(url(None), "http://127.0.0.1:1/v1");
    models.forget_session("s");
    assert_eq!(url(Some("s")), "http://127.0.0.1:1/v1");
}

#[test]
fn sessions_and_their_models_are_bounded() {
    let models = Models::new(BTreeMap::new(), None).unwrap();
    let config = || ModelConfig::at("http://127.0.0.1:2");
    for number in 0..MOST_OF_A_SESSION + 3 {
        models.set_for_session("s", &format!("m{number}"), config()).unwrap();
    }
    assert!(models.get(Some("m0"), Some("s")).is_err());
    for number in 0..MOST_SESSIONS {
        models.set_for_session(&format!("s{number}"), "m", config()).unwrap();
    }
    assert!(models.get(Some("m5"), Some("s")).is_err(), "the oldest session is forgotten");
    assert_eq!(models.known().sessions.len(), MOST_SESSIONS);
}

#[test]
fn a_reload_is_whole_or_not_at_all_and_keeps_what_stays() {
    let models = Models::new(configs(&["a", "b"]), Some("a".to_owned())).unwrap();
    let before = models.get(Some("a"), None).unwrap();
    let mut broken = configs(&["a", "c"]);
    broken.insert("d".to_owned(), ModelConfig::default());
    let bad = models.replace(broken, None).unwrap_err();
    assert_eq!((bad.name, bad.setting.as_str()), (Quoted::new("d"), "url"));
    assert_eq!(models.names(), ["a", "b"]);
    models.replace(configs(&["a", "c"]), Some("c".to_owned())).unwrap();
    assert!(Arc::ptr_eq(&before, &models.get(Some("a"), None).unwrap()));
    assert_eq!(models.default_name().as_deref(), Some("c"));
    assert!(models.get(Some("b"), None).is_err());
    let longer = ModelConfig { timeout_seconds: 5, ..ModelConfig::at("http://127.0.0.1:1") };
    models.replace([("a".to_owned(), longer)].into(), None).unwrap();
    assert_eq!(models.get(None, None).unwrap().timeout().as_secs(), 5);
}

#[test]
fn names_of_models_are_names() {
    let models = Models::new(BTreeMap::new(), None).unwrap();
    for name in ["", "a b", "a\n", &"x".repeat(101), "\u{202e}x"] {
        let config = ModelConfig::at("http://127.0.0.1:1");
        assert_eq!(models.set_for_session("s", name, config).unwrap_err().setting, "name");
    }
    let config = ModelConfig::at("http://127.0.0.1:1");
    models.set_for_session("s", "http://127.0.0.1:8080/v1", config).unwrap();
}

#[test]
fn who_makes_embeddings_is_found() {
    let embeds = ModelConfig {
        embedding_model: Some("e".to_owned()),
        ..ModelConfig::at("http://127.0.0.1:1")
    };
    let mut all = configs(&["a", "b"]);
    all.insert("c".to_owned(), embeds.clone());
    let models = Models::new(all, Some("a".to_owned())).unwrap();
    let found = |name, session| {
        let found = models.embedding(name, session);
        found.map(|model| model.name().to_owned()).map_err(|error| error.to_string())
    };
    assert_eq!(found(None, None).unwrap(), "c");
    assert_eq!(found(Some("c"), None).unwrap(), "c");
    let error = found(Some("b"), None).unwrap_err();
    assert!(error.starts_with("the model `b` makes no embeddings"), "{error}");
    assert!(found(Some("bb"), None).unwrap_err().contains("did you mean"));
    models.set_for_session("s", "own", embeds).unwrap();
    assert_eq!(found(None, Some("s")).unwrap(), "own");
}

#[test]
fn a_model_of_a_session_that_stays_the_same_goes_on_and_is_gone_when_it_is_forgotten() {
    let models = Models::new(BTreeMap::new(), None).unwrap();
    let config = ModelConfig::at("http://127.0.0.1:9/v1");
    models.set_for_session("s", "own", config.clone()).unwrap();
    let first = models.get(None, Some("s")).unwrap();
    models.set_for_session("s", "own", config).unwrap();
    assert!(Arc::ptr_eq(&first, &models.get(None, Some("s")).unwrap()));
    models.set_for_session("s", "own", ModelConfig::at("http://127.0.0.1:10/v1")).unwrap();
    assert!(!Arc::ptr_eq(&first, &models.get(None, Some("s")).unwrap()));
    models.forget_session("s");
    assert!(models.get(None, Some("s")).is_err());
}
