//! Overload and hostile clients against the real binary, and the guarantees that must hold.

mod breaker;
mod concurrency;
mod crowd;
mod differential;
mod flood;
mod forwarding;
mod fronts;
mod memory;
mod penetration;
mod rate;
#[cfg(feature = "failpoints")]
mod saturation;
mod scan;
mod shed;
mod slow;
mod smuggling;
mod wire;
