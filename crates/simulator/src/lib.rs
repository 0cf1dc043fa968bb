//! Simulator: the real cache and admission, fed by a simulated database in virtual time.
//!
//! One thread steps everything. A pseudo-random generator chooses every delay, fault and request,
//! and the scheduler takes the next event from a queue ordered by virtual time. A run is therefore
//! determined by the engine, the seed and the number of steps, and any violation can be repeated
//! from these three. The idea is that of TigerBeetle's simulator (VOPR).
//!
//! What is real: `hotrow_cache`, `hotrow_admission`, the types of keys, positions and versions, the
//! interface [`hotrow_source::Sink`], the catalogue watermark and the back-off. What is simulated:
//! the database with its log, the connection of the feed, queries, clients and time. Sockets, HTTP,
//! drain, signals and threads are outside; the tests of the binary and shuttle cover them.
//!
//! Reading order: `engine` (what engines differ in), `database` (rows, transactions, log), `feed`
//! and `sink` (changes on their way to the cache), `loader` (queries), `client` and `min_position`
//! (requests), `oracle` (the consistency contract), `fault`, `world` (the scheduler), `settle` (the
//! end of a run), and [`run`].

mod admission;
mod client;
mod counts;
mod database;
mod delivery;
mod engine;
mod fault;
mod feed;
mod loader;
mod min_position;
mod oracle;
mod queue;
mod random;
mod run;
mod settings;
mod settle;
mod sink;
mod slab;
mod standby;
#[cfg(test)]
mod tests;
mod transaction;
mod world;

pub use counts::Counts;
pub use engine::{ENGINES, Engine};
pub use run::{Report, Rules, Scenario, Violation, run, shrink};
