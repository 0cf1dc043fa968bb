//! Forms of a record in an answer of HTTP: [`record_form`] (the record as it is, or a variant of
//! it), [`precondition`] (whether a client has it already) and [`header_writer`] (entity tags and
//! positions without an allocation for each answer).
//!
//! It imports `cache` for records, `http1` for fields and `types`; it does no I/O and knows no
//! collection, no connection and no handler. A hit passes it, so its doors are inline.

pub mod header_writer;
pub mod precondition;
pub mod record_form;
