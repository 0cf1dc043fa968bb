//! Any bytes are usable grants or a refusal with its reason.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotrow::config::fuzzing::grants_file(bytes));
