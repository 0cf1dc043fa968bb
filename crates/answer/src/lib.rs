//! Words that every part of the service uses: a request and its context, the answer and its body,
//! refusals, collections, budgets, and counters of a worker.
//!
//! Reading order: [`request`], [`context`], [`route`], [`credential`], [`read_requirement`] (what
//! is asked); [`collections`], [`sight`], [`budgets`] (by what it is judged); [`answer`],
//! [`record_answer`], [`respond`], [`body`], [`http_error`], [`error_type`], [`shed`], [`cors`]
//! (what is answered); [`activity`], [`rejection`] (the connection that carries both); [`metrics`].

pub mod activity;
pub mod answer;
pub mod body;
pub mod budgets;
pub mod client;
pub mod clients;
pub mod collections;
pub mod commands;
pub mod context;
pub mod cors;
pub mod credential;
pub mod error_type;
pub mod http_error;
pub mod ids;
pub mod memory;
pub mod metrics;
mod pace;
pub mod rate_fields;
pub mod read_requirement;
pub mod ready_tasks;
pub mod receive;
pub mod record_answer;
pub mod rejection;
pub mod render;
mod repeat_filter;
pub mod request;
pub mod respond;
pub mod retry_after;
pub mod route;
pub mod scan_detector;
pub mod shed;
pub mod tenant_filter;
pub mod units;
pub mod written;
