//! Experiments on whole deployments: services, proxies in front of them, loads, and a report.
//!
//! Reading order: [`experiment`] (the experiment file), [`run`] (its measurements), [`stage`]
//! (processes with limits), [`report`] (Markdown and HTML, from the results of `hotrow_results`);
//! [`limiter`] (the rate limiter's vectors), [`policies`] (cache policies on traces),
//! [`workloads`] (workloads that other commands reproduce). Proxies are in `hotrow_proxies`, models
//! of request processing in `hotrow_models`.

pub mod experiment;
pub mod limiter;
pub mod policies;
pub mod report;
pub mod run;
pub mod stage;
pub mod workloads;
