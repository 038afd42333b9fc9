//! Names that say that a value is secret.

/// A name whose last word is one of these hides its value.
const LAST_WORD: &[&str] = &[
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "passcode",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "authorization",
    "cookie",
    "cookies",
    "jwt",
    "otp",
    "mnemonic",
    "apikey",
    "apikeys",
    "apitoken",
    "accesskey",
    "secretkey",
    "privatekey",
    "accesstoken",
    "refreshtoken",
    "authtoken",
    "sessiontoken",
    "idtoken",
    "clientsecret",
    "apisecret",
    "confirmtoken",
    "passwords",
    "totp",
    "cvv",
    "cvc",
    "pin",
    "jsessionid",
    "phpsessid",
];

/// A name whose last two words are one of these hides its value.
const LAST_TWO_WORDS: &[(&str, &str)] = &[
    ("api", "key"),
    ("api", "keys"),
    ("access", "key"),
    ("access", "keys"),
    ("secret", "key"),
    ("secret", "keys"),
    ("private", "key"),
    ("private", "keys"),
    ("signing", "key"),
    ("encryption", "key"),
    ("master", "key"),
    ("session", "key"),
    ("auth", "key"),
    ("ssh", "key"),
    ("account", "key"),
    ("service", "key"),
    ("admin", "key"),
    ("access", "tokens"),
    ("refresh", "tokens"),
    ("auth", "tokens"),
    ("api", "tokens"),
    ("session", "tokens"),
    ("access", "signature"),
    ("password", "hash"),
    ("secret", "value"),
    ("secret", "string"),
    ("token", "value"),
    ("password", "value"),
    ("seed", "phrase"),
    ("recovery", "code"),
    ("recovery", "codes"),
    ("secret", "access"),
    ("session", "cookie"),
    ("db", "pass"),
    ("user", "pass"),
    ("smtp", "pass"),
    ("mail", "pass"),
    ("ftp", "pass"),
    ("ssh", "pass"),
    ("mysql", "pass"),
    ("redis", "pass"),
    ("admin", "pass"),
    ("root", "pass"),
    ("basic", "auth"),
    ("subscription", "key"),
    ("functions", "key"),
    ("key", "data"),
    ("tls", "key"),
    ("key", "base"),
    ("openai", "key"),
    ("anthropic", "key"),
    ("stripe", "key"),
    ("github", "key"),
    ("google", "key"),
    ("azure", "key"),
    ("aws", "key"),
    ("amz", "signature"),
];

/// A name that is exactly this one word hides its value.
const WHOLE: &[&str] = &["auth", "confirm", "bearer", "sig"];

/// `…Token` hides its value, except where the word before it says that it is a place in a list or a
/// piece of text.
const HARMLESS_TOKENS: &[&str] = &[
    "page",
    "next",
    "previous",
    "prev",
    "continuation",
    "sync",
    "stop",
    "start",
    "eos",
    "bos",
    "pad",
    "unk",
    "per",
];

/// A name whose last word ends like this hides its value: `pgpassword`.
const LAST_WORD_ENDING: &[&str] = &["password", "passwd", "apikey", "secretkey"];

/// Words behind a name that do not change what it is: `DB_PASSWORD_PROD`.
const QUALIFIERS: &[&str] =
    &["prod", "production", "dev", "development", "staging", "test", "old", "new", "backup"];

/// No real field name is longer.
const LONGEST: usize = 256;

/// Does the name `name` say that its value is secret?
///
/// The name is read as words, however they are joined: `apiKey`, `API_KEY`, `x-api-key`.
pub fn is_sensitive(name: &str) -> bool {
    if name.len() > LONGEST {
        return false;
    }
    let is = |word: &str, other: &&str| word.eq_ignore_ascii_case(other);
    let (mut rest, mut last) = split_last_word(without_tail(name));
    if QUALIFIERS.iter().any(|word| is(last, word)) && !without_tail(rest).is_empty() {
        (rest, last) = split_last_word(without_tail(rest));
    }
    let (_, before) = split_last_word(rest);
    if LAST_WORD.iter().any(|word| is(last, word)) || ends_like_a_secret(last) {
        return true;
    }
    if before.is_empty() {
        return is(last, &"token") || WHOLE.iter().any(|word| is(last, word));
    }
    LAST_TWO_WORDS.iter().any(|(one, two)| is(before, one) && is(last, two))
        || (is(last, &"token") && !HARMLESS_TOKENS.iter().any(|word| is(before, word)))
}

/// The name up to its last letter: what follows is no part of a word (`password2`, `api_key_1`).
fn without_tail(name: &str) -> &str {
    name.trim_end_matches(|c: char| !c.is_ascii_alphabetic())
}

fn ends_like_a_secret(word: &str) -> bool {
    LAST_WORD_ENDING.iter().any(|ending| {
        let at = word.len().checked_sub(ending.len());
        at.and_then(|at| word.get(at..)).is_some_and(|tail| tail.eq_ignore_ascii_case(ending))
    })
}

/// What stands before the last word of a name, and that word. A word starts behind a character that
/// is neither letter nor digit, and at a capital: `apiKey` → api, Key; `APIKey` → API, Key.
fn split_last_word(name: &str) -> (&str, &str) {
    let name = name.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    let bytes = name.as_bytes();
    let mut start = bytes.len();
    while let Some(byte) = start.checked_sub(1).and_then(|at| bytes.get(at)) {
        if !byte.is_ascii_alphanumeric() {
            break;
        }
        start -= 1;
        let previous = start.checked_sub(1).and_then(|at| bytes.get(at));
        let next = bytes.get(start + 1);
        let is_hump = byte.is_ascii_uppercase()
            && (previous.is_some_and(|p| p.is_ascii_lowercase() || p.is_ascii_digit())
                || (previous.is_some_and(u8::is_ascii_uppercase)
                    && next.is_some_and(u8::is_ascii_lowercase)));
        if is_hump {
            break;
        }
    }
    name.split_at_checked(start).unwrap_or((name, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_however_they_are_written() {
        for name in [
            "password",
            "PASSWORD",
            "db_password",
            "userPassword",
            "apiKey",
            "api_key",
            "API-KEY",
            "x-api-key",
            "APIKey",
            "OPENAI_API_KEY",
            "apikey",
            "token",
            "accessToken",
            "access_token",
            "id_token",
            "csrfToken",
            "Authorization",
            "proxy-authorization",
            "Cookie",
            "Set-Cookie",
            "client_secret",
            "clientSecret",
            "privateKey",
            "PRIVATE_KEY",
            "credentials",
            "KALSHI-ACCESS-KEY",
            "aws_secret_access_key",
            "passphrase",
            "confirm",
            "confirmToken",
            "auth",
            "password2",
            "api_key_1",
            "refresh_tokens",
            "SecretString",
            "PGPASSWORD",
            "DB_PASSWORD_PROD",
            "db_pass",
            "SECRET_KEY_BASE",
            "été_password",
            "password\u{200b}",
            "-Dpassword",
            "sig",
        ] {
            assert!(is_sensitive(name), "{name}");
        }
    }

    #[test]
    fn names_that_only_sound_like_it_are_not() {
        for name in [
            "max_tokens",
            "tokens",
            "token_count",
            "tokenId",
            "token_id",
            "nextPageToken",
            "page_token",
            "stop_token",
            "secret_name",
            "password_policy",
            "key",
            "keys",
            "primary_key",
            "author",
            "authRequired",
            "secretary",
            "passwordless",
            "cookie_policy",
            "confirmed",
            "",
            "_",
            "1",
            "public_key",
            "pass",
            "bypass",
            "pässword",
            "test",
            "new",
            "sigma",
            "session_id",
            "keyboard",
        ] {
            assert!(!is_sensitive(name), "{name}");
        }
    }

    #[test]
    fn the_published_words_are_these() {
        let spec: serde_json::Value =
            serde_json::from_str(include_str!("../../../../spec/redaction.json")).unwrap();
        assert_eq!(spec["lastWord"], serde_json::json!(LAST_WORD));
        assert_eq!(spec["lastTwoWords"], serde_json::json!(LAST_TWO_WORDS));
        assert_eq!(spec["lastWordEnding"], serde_json::json!(LAST_WORD_ENDING));
        assert_eq!(spec["qualifiers"], serde_json::json!(QUALIFIERS));
        assert_eq!(spec["wholeName"], serde_json::json!(WHOLE));
        assert_eq!(spec["harmlessTokens"], serde_json::json!(HARMLESS_TOKENS));
    }
}
