//! How a receiver knows that a delivery is ours, and fresh.

use ring::hmac;
use tollgate_contract::{Secret, text::hex};

/// The value of `x-tollgate-signature`: `t=UNIX_SECONDS,v1=HEX`.
///
/// HEX is the HMAC-SHA256 of `UNIX_SECONDS.BODY` under the hook's secret. The time is inside, so that a
/// receiver can refuse what somebody recorded and sends again later.
pub fn signature(secret: &Secret, unix_seconds: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(format!("{unix_seconds}.").as_bytes());
    context.update(body.as_bytes());
    format!("t={unix_seconds},v1={}", hex(context.sign().as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_as_others_compute_it() {
        // printf '1767323045.{"a":1}' | openssl dgst -sha256 -hmac 's3cret'
        let secret = Secret::new("s3cret".to_owned());
        assert_eq!(
            signature(&secret, 1_767_323_045, "{\"a\":1}"),
            "t=1767323045,v1=19deeee1dbf3e68132db6a4db41cfe324ecf01ea3d30e68ce4b483b0d0980d5c"
        );
    }
}
