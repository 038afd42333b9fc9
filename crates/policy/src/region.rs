//! Where an order is from: a region code such as `US` or `US-NY`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tollgate_contract::Quoted;

/// A country of two letters, or a part of one: `US`, `US-NY`. Kept in capitals.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region(String);

impl Region {
    /// Reads a region code. Anything else names no place that could be compared with another.
    pub fn parse(text: &str) -> Result<Self, String> {
        let code = text.trim();
        let (country, part) = code.split_once('-').map_or((code, None), |(c, p)| (c, Some(p)));
        let is_country = country.len() == 2 && country.bytes().all(|b| b.is_ascii_alphabetic());
        let is_part = part.is_none_or(|part| {
            (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
        });
        if is_country && is_part {
            Ok(Self(code.to_ascii_uppercase()))
        } else {
            Err(format!("{} is not a region code such as `US` or `US-NY`", Quoted::new(text)))
        }
    }

    /// May an order from here be from `other` too: is one of them the other, or a part of it?
    pub fn overlaps(&self, other: &Self) -> bool {
        let within = |small: &str, large: &str| {
            small.strip_prefix(large).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        within(&self.0, &other.0) || within(&other.0, &self.0)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

impl Serialize for Region {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Region {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_region_codes_are_read() {
        for (text, code) in [("US", "`US`"), (" us-ny ", "`US-NY`"), ("GB-1", "`GB-1`")] {
            assert_eq!(Region::parse(text).unwrap().to_string(), code);
        }
        for bad in [
            "",
            " ",
            "USA",
            "US NV",
            "US_NV",
            "US\u{2013}NV",
            "Nevada",
            "U",
            "US-",
            "US-NEVADA",
            "1A",
            "ÄÖ",
        ] {
            assert!(Region::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_part_and_the_whole_overlap_both_ways() {
        let region = |text| Region::parse(text).unwrap();
        assert!(region("US-NY").overlaps(&region("US")));
        assert!(region("US").overlaps(&region("US-NY")));
        assert!(region("us").overlaps(&region("US")));
        assert!(!region("US-NY").overlaps(&region("US-NV")));
        assert!(!region("US").overlaps(&region("DE")));
    }
}
