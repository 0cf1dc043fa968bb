//! Reasons that a deployment does not start.

use super::ready::ReadyError;
use crate::stage::{self, StageError};
use hotrow_proxies::haproxy::HaproxyError;
use hotrow_proxies::nginx::NginxError;

/// Reason a deployment cannot run.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    ReadyError(#[from] ReadyError),
    #[error(transparent)]
    Nginx(#[from] NginxError),
    #[error(transparent)]
    Haproxy(#[from] HaproxyError),
    #[error("{0}")]
    Port(std::io::Error),
    #[error("{what} cannot be created: {error}")]
    File { what: String, error: std::io::Error },
    #[error("{name}: {{{placeholder}}} has no value here")]
    Placeholder { name: String, placeholder: String },
    #[error("TLS: {0}")]
    Tls(#[from] hotrow_transport::tls::TlsError),
    #[error(transparent)]
    Credential(#[from] hotrow_transport::credential::CredentialError),
    #[error("preparing {name} failed ({command}): {how}")]
    Prepare { name: String, command: String, how: String },
    #[error("interrupted")]
    Interrupted,
}

pub(super) fn port_free() -> Result<u16, StartError> {
    stage::free_port().map_err(StartError::Port)
}
