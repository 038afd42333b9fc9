//! Ids that say what they name: `call_…`, `run_…`. Over UUID v7, so that they sort by time.
//!
//! Nothing here reads a clock or makes randomness: both are passed in.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::{Builder, Uuid};

use crate::text::Quoted;

/// A text that is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text} is not an id as the gate gives them: `{prefix}` followed by a UUID of version 7 in 32 lower-case hex digits"
)]
pub struct IdError {
    text: Quoted,
    prefix: &'static str,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// What every id of this kind starts with.
            pub const PREFIX: &'static str = $prefix;

            /// Makes an id from the time in milliseconds since 1970 and ten random bytes.
            pub fn from_parts(unix_ms: u64, random: [u8; 10]) -> Self {
                Self(Builder::from_unix_timestamp_millis(unix_ms, &random).into_uuid())
            }

            /// Reads an id of this kind.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                read(text, $prefix).map(Self).ok_or_else(|| IdError { text: text.into(), prefix: $prefix })
            }

            /// When it was made, in milliseconds since 1970.
            pub fn unix_ms(&self) -> u64 {
                let [a, b, c, d, e, f, ..] = *self.0.as_bytes();
                u64::from_be_bytes([0, 0, a, b, c, d, e, f])
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                f.write_str(self.0.simple().encode_lower(&mut Uuid::encode_buffer()))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a string")
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::parse(text).map_err(de::Error::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }
    )*};
}

ids! {
    /// One call of a tool.
    CallId = "call_";
    /// One run of an agent or of the direct runner.
    RunId = "run_";
    /// One intent.
    IntentId = "int_";
    /// What an approval holds in the pools.
    HoldId = "hold_";
    /// An API key's public name; never the key.
    KeyId = "key_";
    /// An item of memory.
    MemoryId = "mem_";
    /// A capability that was granted.
    GrantId = "cap_";
    /// A person's answer that a call waits for.
    ApprovalId = "apr_";
    /// One request at a door.
    RequestId = "req_";
}

impl From<IntentId> for HoldId {
    /// An intent holds once, so that its hold has the same number.
    fn from(intent: IntentId) -> Self {
        Self(intent.0)
    }
}

fn read(text: &str, prefix: &str) -> Option<Uuid> {
    let digits = text.strip_prefix(prefix)?;
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if digits.len() != 32 || !digits.bytes().all(is_hex) {
        return None;
    }
    Uuid::try_parse(digits).ok().filter(|uuid| uuid.get_version_num() == 7)
}

#[cfg(test)]
#[path = "id_tests.rs"]
mod tests;
