//! What keeps a PostgreSQL database from being served, and what mends it.

use super::stream::ConnectError;
use super::target::TargetError;
use crate::findings;
pub use crate::findings::{Finding, Findings};

/// Why a database cannot be served.
pub type OpenError = findings::OpenError<TargetError, ConnectError>;
