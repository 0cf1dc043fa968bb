//! PostgreSQL.

pub use self::error::{Finding, Findings, OpenError};
pub use self::stream::ConnectError;
pub use self::target::TargetError;
pub use self::tls::TlsSetupError;

pub mod config;
mod error;
mod stream;
mod target;
mod tls;

#[cfg(test)]
mod tests;
