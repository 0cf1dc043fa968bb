//! Admission decisions: rate limits, byte budgets, concurrency, circuit breakers, load shedding.
//!
//! No I/O, no clock, no threads. Time is an argument, so that everything is tested in virtual time.

pub mod breaker;
pub mod byte_budget;
/// Number of queries at the database, order of the keys, and keys that are rejected.
///
/// Reading order: [`limit`](concurrency::limit) (queries of a source in flight),
/// [`queue`](concurrency::queue) (content of a collection's next query),
/// [`cost`](concurrency::cost) (expected duration of a query by its number of keys, used by both).
pub mod concurrency {
    pub mod cost;
    pub mod limit;
    pub mod queue;

    #[cfg(test)]
    mod tests {
        pub(super) mod simulation;
    }
}
pub mod rate;
pub mod shed;
