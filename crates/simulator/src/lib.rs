//! Simulated world: the real decisions of the service over a simulated database in virtual time.
//!
//! One thread steps everything. A pseudo-random generator chooses every delay, fault and request,
//! and the scheduler takes the next event from a queue ordered by virtual time. A run is therefore
//! determined by the engine, the seed and the number of steps, and any violation can be repeated
//! from these three. The idea is that of TigerBeetle's simulator (VOPR).
//!
//! What is real: `hotrow_cache`, `hotrow_admission`, `hotrow_push`, `hotrow_hub`, the types of
//! keys, positions and versions, the interface [`hotrow_source::Sink`], the catalogue watermark and
//! the back-off. What is simulated: the database with its log, the connection of the feed, queries,
//! clients and time. Sockets, HTTP, drain, signals and threads are outside; the tests of the binary
//! and shuttle cover them.
//!
//! Lookups, with standbys and positions, run over every engine with all faults. The other scenarios
//! share the database and the clock: aliases, embedded rows, followers, tracking, purges and the
//! hub. `planted` lists the mistakes that each must find.
//!
//! Reading order: `engine` (what engines differ in), `database` (rows, transactions, log), `feed`
//! and `sink` (changes on their way to the cache), `loader` (queries), `client`, `min_position`,
//! `strict` and `snapshot` (requests), `oracle` (the consistency contract), `fault`, `world` (the
//! scheduler), `settle` (the end of a run), and [`run`]. Then `direct`, `scenarios` and `planted`.

mod admission;
mod client;
mod counts;
mod database;
mod delivery;
#[cfg(feature = "failpoints")]
mod direct;
mod engine;
mod fault;
mod feed;
mod loader;
mod min_position;
mod oracle;
#[cfg(feature = "failpoints")]
mod planted;
mod queue;
mod random;
mod run;
#[cfg(feature = "failpoints")]
mod scenarios;
mod settings;
mod settle;
mod sink;
mod slab;
mod snapshot;
mod standby;
mod strict;
#[cfg(test)]
mod tests;
mod transaction;
mod world;

pub use counts::Counts;
pub use engine::{ENGINES, Engine};
#[cfg(feature = "failpoints")]
pub use planted::{PLANTED, Planted, STRICT_PLANTED, StrictPlanted, UNGUARDED, Unguarded};
pub use run::{Mix, Report, Rules, Scenario, StrictMistake, Violation, run, shrink};
#[cfg(feature = "failpoints")]
pub use scenarios::{AliasMistake, EmbeddedMistake, Mistake, WORLDS, World};
