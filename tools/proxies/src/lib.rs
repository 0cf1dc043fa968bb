//! Proxies of an experiment, and added network delay.
//!
//! Reading order: [`nginx`] and [`haproxy`] (configurations from an experiment's profile),
//! `tool` (running other programs for a bounded time), [`delay`].

pub mod delay;
pub mod haproxy;
pub mod nginx;
mod tool;
