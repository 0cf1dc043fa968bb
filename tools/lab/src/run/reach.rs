//! How a service is reached: over which socket, with which certificates, and as whom.

use std::net::SocketAddr;
use std::path::PathBuf;

use hotrow_transport::credential;
use hotrow_transport::target::Address;
use hotrow_transport::tls::{ClientIdentity, Tls, TlsOptions, Trust};

use super::start_error::StartError;
use crate::experiment::Access;

/// Name that the certificates of services have.
pub(super) const SERVER_NAME: &str = "localhost";

/// A service as its clients reach it.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    pub(super) address: Address,
    pub(super) tls: Option<Tls>,
    /// Header fields of each request, besides those of the load.
    pub(super) headers: Vec<(String, String)>,
}

impl Reach {
    /// Returns a service without credentials in cleartext.
    pub(super) fn plain(address: SocketAddr) -> Self {
        Self { address: Address::Tcp(address), tls: None, headers: Vec::new() }
    }

    /// Reads the files that `access` names. The service is ready, so that its own are there.
    ///
    /// # Errors
    /// A file is missing or invalid.
    pub(super) fn of(address: SocketAddr, access: &Access) -> Result<Self, StartError> {
        let mut reach = Self::plain(address);
        if let Some(socket) = &access.unix {
            reach.address = Address::Unix(socket.into());
        }
        reach.tls = tls_options(access)
            .map(|options| Tls::new(SERVER_NAME, &options))
            .transpose()
            .map_err(StartError::Tls)?;
        if let Some(file) = &access.headers_file {
            reach.headers = credential::headers(file.as_ref())?;
        }
        if let Some(file) = &access.token_file {
            reach.headers.push(credential::token_header(file.as_ref())?);
        }
        Ok(reach)
    }
}

/// Returns the choices for TLS; `None`: the service speaks cleartext.
fn tls_options(access: &Access) -> Option<TlsOptions> {
    let authority = access.cacert.as_ref()?;
    let identity = access.cert.as_ref().zip(access.key.as_ref());
    Some(TlsOptions {
        trust: Trust::Authority(PathBuf::from(authority)),
        identity: identity.map(|(certificate, key)| ClientIdentity {
            certificate: certificate.into(),
            key: key.into(),
        }),
        ..TlsOptions::default()
    })
}
