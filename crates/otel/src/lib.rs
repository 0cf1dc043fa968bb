//! OpenTelemetry traces without I/O: what is recorded, how much of it is kept, and how it looks on
//! the wire.
//!
//! Reading order: [`context`] (identities, and the header `traceparent`), [`sampling`] (which
//! requests are traced), [`span`] (one record), [`recorder`] (the bounded queue), [`encode`] (OTLP
//! messages in JSON), [`retry`] (what follows an answer of the collector).
//!
//! The server measures and sends: this crate opens no connection and starts no thread.

pub mod context;
pub mod encode;
pub mod recorder;
pub mod retry;
pub mod sampling;
pub mod span;
