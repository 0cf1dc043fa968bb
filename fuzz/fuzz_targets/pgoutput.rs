//! Any bytes are a message of PostgreSQL's `pgoutput` or an error; every part of a message can be
//! read.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotrow_source_postgres::pgoutput::fuzzing::walk(bytes));
