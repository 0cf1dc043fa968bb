//! Experiments on whole deployments: services, proxies in front of them, loads, and a report.
//!
//! Reading order: [`experiment`] (the experiment file), [`run`] (its measurements), [`stage`]
//! (processes with limits), [`nginx`] and [`haproxy`] (proxies), [`delay`] (added network delay),
//! [`results`] (the results file: running writes it, reporting reads it), [`report`] (Markdown and
//! HTML); [`models`] (models of request processing), [`limiter`] (the rate limiter's vectors),
//! [`policies`] (cache policies on traces), [`workloads`] (workloads that other commands
//! reproduce); [`capacity`] (search for a server's capacity); [`observe`] (observation of the
//! machine under load), [`confirm`] (trials that confirm or refute a bottleneck).

pub mod delay;
pub mod experiment;
pub mod haproxy;
pub mod limiter;
pub mod models;
pub mod nginx;
pub mod policies;
pub mod report;
pub mod results;
pub mod run;
pub mod stage;
mod tool;
pub mod workloads;
