//! Any bytes are a header of the PROXY protocol or an error.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotrow_service::fuzzing::proxy_header(bytes));
