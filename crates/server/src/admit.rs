//! From requests and answers to the decisions of `hotrow_admit`, and back.

pub(crate) mod breaker;
pub(crate) mod client;
pub(crate) mod concurrency;
pub(crate) mod deadline;
pub(crate) mod pressure;
pub(crate) mod priority;
pub(crate) mod rate;
pub(crate) mod request;
pub(crate) mod shed;
