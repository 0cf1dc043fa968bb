//! Start of a session: parameters and authentication, until the server is ready.

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::Wire;
use super::error::WireError;
use super::frame::texts;

/// Credentials of a login.
pub(crate) struct Login<'a> {
    pub(crate) user: &'a str,
    pub(crate) database: &'a str,
    pub(crate) password: Option<&'a [u8]>,
    pub(crate) channel_binding: Binding,
}

/// Channel binding of SCRAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// No binding.
    None,
    /// Hash of the server's certificate (`tls-server-end-point`), used if the server offers
    /// binding.
    EndPoint(Vec<u8>),
    /// The same hash; a login without binding fails.
    Required(Vec<u8>),
}

const APPLICATION_NAME: &str = "hotrow feed";

/// Logs in to a session that accepts replication commands for one database.
pub(crate) async fn start<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    login: &Login<'_>,
    deadline: Instant,
) -> Result<Wire<S>, WireError> {
    let mut wire = Wire::new(stream);
    let parameters = [
        ("user", login.user),
        ("database", login.database),
        ("replication", "database"),
        ("application_name", APPLICATION_NAME),
        // Encoding of row values and names.
        ("client_encoding", "UTF8"),
        ("bytea_output", "hex"),
        // Form of keys that are dates and times.
        ("DateStyle", "ISO"),
        ("TimeZone", "UTC"),
        // The creation of a slot waits for running transactions, under a limit of our own.
        ("statement_timeout", "0"),
        ("lock_timeout", "0"),
    ];
    wire.send(deadline, |out| frontend::startup_message(parameters, out)).await?;
    authenticate(&mut wire, login, deadline).await?;
    loop {
        let frame = wire.answer(deadline, "the start of the session").await?;
        match (frame.tag, frame.body.first_chunk::<4>()) {
            (b'Z', _) => return Ok(wire),
            (b'K', Some(pid)) => wire.backend_pid = i32::from_be_bytes(*pid),
            _ => {}
        }
    }
}

async fn authenticate<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    login: &Login<'_>,
    deadline: Instant,
) -> Result<(), WireError> {
    let mut is_bound = false;
    loop {
        let frame = wire.answer(deadline, "authentication").await?;
        let (b'R', Some((kind, rest))) = (frame.tag, frame.body.split_first_chunk::<4>()) else {
            return Err(WireError::Protocol(format!(
                "`{}` instead of a login",
                frame.tag.escape_ascii()
            )));
        };
        match i32::from_be_bytes(*kind) {
            0 if is_bound || !matches!(login.channel_binding, Binding::Required(_)) => {
                return Ok(());
            }
            0 | 3 | 5 if matches!(login.channel_binding, Binding::Required(_)) => {
                return Err(unbound());
            }
            3 => {
                let password = password(login)?;
                wire.send(deadline, |out| frontend::password_message(password, out)).await?;
            }
            5 => {
                let salt = rest.first_chunk::<4>();
                let salt =
                    *salt.ok_or_else(|| WireError::Protocol("MD5 without a salt".to_owned()))?;
                let hash = md5_hash(login.user.as_bytes(), password(login)?, salt);
                wire.send(deadline, |out| frontend::password_message(hash.as_bytes(), out)).await?;
            }
            10 => {
                scram(wire, login, rest, deadline).await?;
                is_bound = true;
            }
            kind => {
                return Err(WireError::Login(format!(
                    "the server requires authentication method {kind}; \
                     supported are scram-sha-256, md5 and password (change pg_hba.conf)"
                )));
            }
        }
    }
}

fn unbound() -> WireError {
    WireError::Login(
        "the server does not offer SCRAM-SHA-256-PLUS, which `channel_binding=require` needs"
            .to_owned(),
    )
}

fn password<'a>(login: &Login<'a>) -> Result<&'a [u8], WireError> {
    let missing = || {
        WireError::Login(format!(
            "the server requires a password of user `{}`, and none is configured",
            login.user
        ))
    };
    login.password.ok_or_else(missing)
}

async fn scram<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    login: &Login<'_>,
    mechanisms: &[u8],
    deadline: Instant,
) -> Result<(), WireError> {
    let offers = |name: &str| texts(mechanisms).any(|offered| offered == name.as_bytes());
    let (mechanism, binding) = match &login.channel_binding {
        Binding::EndPoint(hash) | Binding::Required(hash) if offers(SCRAM_SHA_256_PLUS) => {
            (SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(hash.clone()))
        }
        Binding::Required(_) => return Err(unbound()),
        // The client supports binding and the server does not: the server checks that no
        // intermediary removed its offer.
        Binding::EndPoint(_) if offers(SCRAM_SHA_256) => {
            (SCRAM_SHA_256, ChannelBinding::unrequested())
        }
        _ if offers(SCRAM_SHA_256) => (SCRAM_SHA_256, ChannelBinding::unsupported()),
        _ => {
            return Err(WireError::Login(
                "the server offers no SCRAM method that is known here".to_owned(),
            ));
        }
    };
    let refused = |e: std::io::Error| WireError::Login(format!("SCRAM failed: {e}"));
    let mut scram = ScramSha256::new(password(login)?, binding);
    wire.send(deadline, |out| frontend::sasl_initial_response(mechanism, scram.message(), out))
        .await?;
    let challenge = sasl(wire, 11, deadline).await?;
    scram.update(&challenge).map_err(refused)?;
    wire.send(deadline, |out| frontend::sasl_response(scram.message(), out)).await?;
    let proof = sasl(wire, 12, deadline).await?;
    scram.finish(&proof).map_err(refused)
}

/// Returns the server's next message of a SCRAM exchange, which must be of this kind.
async fn sasl<S: AsyncRead + AsyncWrite + Unpin>(
    wire: &mut Wire<S>,
    wanted: i32,
    deadline: Instant,
) -> Result<bytes::Bytes, WireError> {
    let frame = wire.answer(deadline, "authentication").await?;
    match frame.body.split_first_chunk::<4>() {
        Some((kind, _)) if frame.tag == b'R' && i32::from_be_bytes(*kind) == wanted => {
            Ok(frame.body.slice(4..))
        }
        _ => Err(WireError::Protocol("the server left the SCRAM exchange".to_owned())),
    }
}
