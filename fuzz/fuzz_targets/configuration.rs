//! Any text is a configuration or a list of problems.
#![no_main]

use std::env::VarError;

use hotrow::config::{Overrides, parse};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let unset = |_: &str| Err(VarError::NotPresent);
    if let Err(error) = parse(text, "f.toml", &unset, &Overrides::default()) {
        assert!(!error.problems.is_empty() && !error.to_string().is_empty());
    }
});
