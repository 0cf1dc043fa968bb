//! Experiments on whole set-ups: services, proxies in front of them, loads, and a report that a person wants to read.
//!
//! Reading order: [`experiment`] (what is to be measured), [`run`] (measuring it), [`stage`] (where set-ups run), [`nginx`] (proxies in
//! front of services), [`delay`] (a network between them), [`results`] (what was measured; everything before writes it,
//! everything after reads it), [`report`] (what a person reads); [`models`] (the same requests through a thread, threads, pools and async);
//! [`capacity`] (how much does it carry?); [`watch`] (looking at the machine meanwhile), [`prove`] (is that the limit?).

pub mod capacity;
pub mod delay;
pub mod experiment;
pub mod models;
pub mod nginx;
pub mod prove;
pub mod report;
pub mod results;
pub mod run;
pub mod stage;
pub mod watch;
