//! Any bytes of a client of HTTP/2 are requests, content or an error, the same for every split; see
//! `hotrow_http2::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotrow_http2::fuzzing::frames(bytes));
