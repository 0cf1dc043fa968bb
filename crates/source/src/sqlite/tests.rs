//! Against real files. The writer is another connection (in one test the sqlite3 program).
//!
//! No test here may open a database file by itself (`std::fs::copy` and the like): closing it would drop the locks of
//! all connections in this process. Files are copied and cut by other processes.

mod bench;
mod changes;
mod files;
mod harness;
mod log;
mod open;
mod reads;
mod schema;
