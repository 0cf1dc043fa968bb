//! Forms of a record in an answer of HTTP: [`record_form`] (the record as it is, or a variant of
//! it), [`compression`] (which variant a request gets, and the thread that makes it),
//! [`precondition`] (whether a client has it already) and [`surrogate_key`] (by which caches in
//! front find it).
//!
//! It imports `cache` for records, `http1` for fields, settings of `config`, `types`, and
//! `supervisor` for its thread; it does no I/O and knows no connection and no handler. A hit passes
//! it, so its doors are inline, and it never compresses in a worker.

pub mod compression;
pub mod precondition;
pub mod record_form;
pub mod surrogate_key;
