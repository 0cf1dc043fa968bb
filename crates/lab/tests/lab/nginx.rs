//! Real nginx in every topology: correct responses from the correct backends, and no wrong cache
//! hits.

mod caching;
mod command;
mod harness;
mod midnight;
mod sharing;
