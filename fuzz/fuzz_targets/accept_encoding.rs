//! Any bytes are a choice of a coding that they list, or of none.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotrow_service::fuzzing::accept_encoding(bytes));
