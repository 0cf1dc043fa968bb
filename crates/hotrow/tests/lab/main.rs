//! `hotrow lab` as its users see it.

#![allow(clippy::panic, reason = "tests fail by panicking, in helpers too")]

mod report;
