//! Fuzzes what `check_state_patch` says must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tollgate_fuzz_checks::check_state_patch(bytes));
