//! From requests and answers to the decisions of `hotrow_admit`, and back.

pub(crate) mod concurrency;
pub(crate) mod deadline;
