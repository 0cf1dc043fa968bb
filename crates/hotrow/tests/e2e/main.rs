//! End-to-end tests: the real binary, real sockets, a real SQLite file written by another process.

mod harness;
