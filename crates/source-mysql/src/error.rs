//! Errors that prevent a MySQL or MariaDB server from being served, and their fixes.

use super::connect::ConnectError;
use super::target::TargetError;
use hotrow_source::preflight;
pub use hotrow_source::preflight::{Finding, PreflightErrors};

/// Reason that a database cannot be served.
pub type OpenError = preflight::OpenError<TargetError, ConnectError>;
