//! Any bytes are a certificate with a subject, or none.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotrow_service::fuzzing::certificate_subject(bytes));
