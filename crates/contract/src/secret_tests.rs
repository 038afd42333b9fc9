use super::*;

/// Asks, at compile time, whether a type implements a trait: the inherent constant wins over the one
/// of the blanket trait exactly when the bound holds.
macro_rules! implements {
    ($type:ty: $($bound:tt)+) => {{
        #[allow(dead_code, reason = "chosen only when the bound does not hold")]
        trait Otherwise { const ANSWER: bool = false; }
        impl<T: ?Sized> Otherwise for T {}
        struct Question<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code, reason = "chosen only when the bound holds")]
        impl<T: ?Sized + $($bound)+> Question<T> { const ANSWER: bool = true; }
        <Question<$type>>::ANSWER
    }};
}

#[test]
fn a_secret_cannot_be_printed_serialised_copied_or_compared() {
    assert!(implements!(String: fmt::Display), "the question itself must be able to say yes");
    assert!(!implements!(Secret: fmt::Display));
    assert!(!implements!(Secret: serde::Serialize));
    assert!(!implements!(Secret: PartialEq<Secret>));
    assert!(!implements!(Secret: std::hash::Hash));
    assert!(!implements!(Secret: Clone));
    assert!(!implements!(Secret: AsRef<str>));
    assert!(!implements!(Secret: std::ops::Deref));
}

#[test]
fn debug_shows_nothing_of_it() {
    let secret = Secret::new("canary-in-the-mine".to_owned());
    assert_eq!(format!("{secret:?} {:#?}", Some(&secret)).matches("canary").count(), 0);
}

#[test]
fn a_secret_matches_itself_and_nothing_else() {
    let secret = Secret::new("abc".to_owned());
    assert!(secret.matches(&Secret::new("abc".to_owned())));
    for other in ["abd", "ab", "abcd", ""] {
        assert!(!secret.matches(&Secret::new(other.to_owned())));
        assert!(!secret.matches_bytes(other.as_bytes()));
    }
    assert_eq!(secret.expose(), "abc");
}

#[test]
fn a_secret_is_overwritten_when_it_is_dropped() {
    // The type guarantees it: it holds nothing but a box that overwrites itself.
    assert!(implements!(SecretString: secrecy::zeroize::ZeroizeOnDrop));
    assert_eq!(size_of::<Secret>(), size_of::<SecretString>());
}
