//! Any bytes on a connection are requests or a refusal, the same for every split; see
//! `hotrow_service::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotrow_service::fuzzing::request_path(bytes));
