//! The gate's own secret: it binds idempotency keys and raw inputs to a hash that means nothing
//! outside, and seals the results that are kept for a repeated call, so that the database holds no raw
//! output.

use std::{fs, io, path::Path};

use ring::{
    aead::{self, Aad, LessSafeKey, Nonce, UnboundKey},
    hmac,
};
use tollgate_contract::{Error, error::Internal, text::Clean};

use crate::{clock, secret_file};

/// Where the secret is kept in the data folder.
const FILE: &str = "gate.secret";

/// What the gate seals and hashes with.
pub(crate) struct Seal {
    mac: hmac::Key,
    aead: LessSafeKey,
}

impl Seal {
    /// Reads the secret of a data folder, or makes one.
    pub(crate) fn of_folder(data: &Path) -> Result<Self, Error> {
        let file = data.join(FILE);
        let broken =
            |problem: String| Internal::new(Clean::already(format!("the file {FILE} {problem}")));
        match fs::read(&file) {
            Ok(bytes) => {
                let secret: [u8; 32] = bytes.try_into().map_err(|_| {
                    broken(
                        "is damaged; restore it, or delete it and start with --new-secret"
                            .to_owned(),
                    )
                })?;
                Self::new(&secret)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let secret: [u8; 32] = clock::random()?;
                secret_file::write(&file, &secret)
                    .map_err(|error| broken(format!("cannot be used: {error}")))?;
                Self::new(&secret)
            }
            Err(error) => Err(broken(format!("cannot be used: {error}")).into()),
        }
    }

    fn new(secret: &[u8; 32]) -> Result<Self, Error> {
        // Two keys from one secret, so that neither use says anything about the other.
        let root = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived = |purpose: &str| hmac::sign(&root, purpose.as_bytes());
        let key = UnboundKey::new(&aead::CHACHA20_POLY1305, derived("tollgate results").as_ref())
            .map_err(|_| Internal::new("a key of the wrong length"))?;
        let mac = hmac::Key::new(hmac::HMAC_SHA256, derived("tollgate hashes").as_ref());
        Ok(Self { mac, aead: LessSafeKey::new(key) })
    }

    /// What shows that this is the same secret, and nothing else.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        self.hash(&[b"fingerprint"])
    }

    /// A keyed hash over parts, each with its length before it.
    pub(crate) fn hash(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.mac);
        for part in parts {
            context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            context.update(part);
        }
        context.sign().as_ref().try_into().unwrap_or_default()
    }

    /// Seals `bytes` for the place `about`.
    pub(crate) fn seal(&self, about: &[u8], bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let nonce: [u8; 12] = clock::random()?;
        let mut sealed = bytes.to_vec();
        self.aead
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(about),
                &mut sealed,
            )
            .map_err(|_| Internal::new("a result cannot be sealed"))?;
        Ok([nonce.as_slice(), sealed.as_slice()].concat())
    }

    /// Opens what was sealed for the same place; `None` if it was not, or was changed.
    pub(crate) fn open(&self, about: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_at_checked(12)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut bytes = sealed.to_vec();
        let opened = self.aead.open_in_place(nonce, Aad::from(about), &mut bytes).ok()?;
        Some(opened.to_vec())
    }
}

#[cfg(test)]
#[path = "seal_tests.rs"]
mod tests;
