//! Fuzzes what `check_extractor` says must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz_checks::check_extractor(bytes));
