//! Any bytes of a server are answers or malformed, the same for every split; see
//! `hotrow_load::response::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotrow_load::response::fuzzing::answers(bytes));
