//! Adapters between requests and answers and the decisions of `hotrow_admission`.

pub(crate) mod breaker;
pub(crate) mod client;
pub(crate) mod concurrency;
pub(crate) mod deadline;
pub(crate) mod pressure;
pub(crate) mod priority;
pub(crate) mod rate;
pub(crate) mod request;
pub(crate) mod shed;
