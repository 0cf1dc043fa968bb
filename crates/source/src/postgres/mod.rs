//! PostgreSQL.

pub use self::feed::PostgresFeed;
pub use self::error::{Finding, Findings, OpenError};
pub use self::stream::ConnectError;
pub use self::target::TargetError;
pub use self::tls::TlsSetupError;

mod backoff;
pub mod config;
mod connect;
mod delivery;
mod error;
mod feed;
mod inspect;
mod json;
mod link;
pub mod pgoutput;
mod probe;
mod publication;
mod server;
mod session;
mod shared;
mod stream;
mod survey;
mod target;
mod tls;
mod tuning;
mod visibility;
mod wire;

#[cfg(test)]
mod tests;
