//! Reasons that a command line or a configuration is refused.

use hotrow_cli::transport_args::TransportError;

use super::configuration::ConfigurationError;

/// Reason the command line and the configuration are refused.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigurationError),
    /// TLS, headers or credentials.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A command-line value is invalid.
    #[error("--{option}: {what}")]
    Option {
        /// The option.
        option: &'static str,
        /// The rule and the value.
        what: String,
    },
    /// The collection cannot be used.
    #[error("the collection {name} {what}")]
    Collection {
        /// Its name.
        name: String,
        /// The reason.
        what: String,
    },
}

pub(super) fn invalid_option(option: &'static str, what: String) -> PlanError {
    PlanError::Option { option, what }
}
