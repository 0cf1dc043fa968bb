//! A real nginx in every topology: right answers from the right backends, and nothing from the cache that should not be.

mod caching;
mod command;
#[cfg(feature = "reference")]
mod midnight;
mod sharing;
mod world;
