//! Fuzzes what `check_manifest` says must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz_checks::check_manifest(bytes));
