//! `hotrow lab`: real processes, real proxies, the real binary.

#![allow(clippy::panic, reason = "tests fail by panicking, in helpers too")]

mod stage;
