//! What keeps a MySQL or MariaDB server from being served, and what mends it.

use super::connect::ConnectError;
use super::target::TargetError;
use crate::findings;
pub use crate::findings::{Finding, Findings};

/// Why a database cannot be served.
pub type OpenError = findings::OpenError<TargetError, ConnectError>;
