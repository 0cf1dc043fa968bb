//! Tests against real files. The writer is another connection, and in one test the sqlite3 program.
//!
//! No test may open a database file by itself (`std::fs::copy` and the like): closing it would drop
//! the locks of all connections in this process. Other processes copy and truncate files.

mod bench;
mod changes;
mod files;
mod harness;
mod locks;
mod log;
mod open;
mod reads;
mod schema;
