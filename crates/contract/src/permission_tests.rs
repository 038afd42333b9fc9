use super::*;

#[test]
fn built_in_and_dotted_permissions_are_read() {
    for text in Permission::BUILT_IN {
        assert_eq!(Permission::parse(text).unwrap().as_str(), *text);
    }
    assert_eq!(Permission::parse("acme.deploy").unwrap().as_str(), "acme.deploy");
}

#[test]
fn a_misspelt_permission_is_refused_with_the_nearest_one() {
    let error = Permission::parse("user_dat").unwrap_err();
    assert_eq!(error.to_string(), "`user_dat` is not a permission; did you mean `user_data`?");
    assert!(Permission::parse("Write").is_err());
    assert!(Permission::parse("").is_err());
}
