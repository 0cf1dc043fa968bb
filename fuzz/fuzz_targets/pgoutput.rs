//! Any bytes are a message of PostgreSQL's `pgoutput` or an error; every part of a message can be looked at.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotrow_source::postgres::pgoutput::fuzzing::walk(bytes));
