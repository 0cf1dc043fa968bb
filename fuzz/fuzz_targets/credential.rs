//! No bytes are a credential except those that were signed or made; see `hotrow_access::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotrow_access::fuzzing::credential(bytes));
