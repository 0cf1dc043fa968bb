//! Errors that keep a PostgreSQL database from being served, with their remedies.

use super::stream::ConnectError;
use super::target::TargetError;
use hotrow_source::preflight;
pub use hotrow_source::preflight::{Finding, PreflightErrors};

/// Error of [`super::open`].
pub type OpenError = preflight::OpenError<TargetError, ConnectError>;
