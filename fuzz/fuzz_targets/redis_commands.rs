//! Any bytes of a client of the Redis protocol are commands or an error, the same for every split;
//! see `hotrow_resp::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotrow_resp::fuzzing::commands(bytes));
