//! Steps of a handler that may refuse a request (`request`, `rate_pass`), and the load by which
//! they do (`pressure`). The limits themselves are [`hotrow_gate::admission`].

#[cfg(test)]
mod breaker_tests;
pub mod pressure;
mod rate_pass;
pub mod request;
