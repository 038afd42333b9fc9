//! The fake model itself.
