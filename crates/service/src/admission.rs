//! Steps of a handler that may refuse a request (`request`, `rate_pass`), and the load by which
//! they do (`pressure`). The limits themselves are [`hotrow_gate::admission`].

pub mod pressure;
mod rate_pass;
pub mod request;
#[cfg(test)]
mod tests;
