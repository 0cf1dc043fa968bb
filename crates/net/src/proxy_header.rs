//! Header of the PROXY protocol, version 2: the bytes with which a proxy names the client before
//! the first byte of the client. Decisions only; `handshake` reads the bytes.
//!
//! The header has a fixed part, which announces the length of the rest: addresses and extensions
//! (TLVs). Extensions must be well-formed and are ignored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of the fixed part.
pub const FIXED_BYTES: usize = 16;
/// Most bytes of addresses and extensions. Load balancers of clouds send less than 300.
pub(crate) const REST_BYTES_MAX: usize = 2048;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// First bytes of version 1.
const TEXT_SIGNATURE: &[u8] = b"PROXY ";
/// Addresses and ports of TCP over IPv4, and over IPv6.
const IPV4_BYTES: usize = 12;
const IPV6_BYTES: usize = 36;

/// The fixed part of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedPart {
    command: Command,
    family: Family,
    /// Length of the rest, at most [`REST_BYTES_MAX`].
    pub rest_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// The proxy's own connection, as for its health checks.
    Local,
    Proxy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// The proxy does not know the client's address.
    Unspecified,
    Tcp4,
    Tcp6,
}

/// Client of a connection through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxiedClient {
    /// The proxy itself: its own connection, or one whose client it does not know.
    Proxy,
    /// This address.
    Address(IpAddr),
}

/// Reason for which a connection of a proxy is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    /// The bytes are another protocol.
    #[error("the connection does not begin with a header of the PROXY protocol, version 2")]
    Absent,
    /// Version 1, which is text.
    #[error(
        "the proxy sends version 1 of the PROXY protocol; configure version 2 (in HAProxy \
         `send-proxy-v2`)"
    )]
    Version1,
    /// Neither 1 nor 2.
    #[error("version {0} of the PROXY protocol is unknown; only version 2 is read")]
    Version(u8),
    /// The command is neither LOCAL nor PROXY.
    #[error("command {0} of the PROXY protocol is unknown")]
    Command(u8),
    /// Another protocol than TCP over IP.
    #[error("address family and protocol {0:#04x} of the PROXY protocol are not TCP over IP")]
    Family(u8),
    /// Larger than [`REST_BYTES_MAX`].
    #[error("the header of the PROXY protocol announces {0} bytes, more than {REST_BYTES_MAX}")]
    TooLong(usize),
    /// The addresses do not fit into the announced length.
    #[error("the header of the PROXY protocol has {0} bytes, too few for its addresses")]
    TooShort(usize),
    /// The extensions do not end where the header ends.
    #[error("an extension of the PROXY protocol's header reaches beyond its end")]
    Extension,
}

impl FixedPart {
    /// Parses the fixed part.
    ///
    /// # Errors
    /// The connection is not one of a proxy that speaks version 2.
    pub fn parse(bytes: &[u8; FIXED_BYTES]) -> Result<Self, ProxyHeaderError> {
        use ProxyHeaderError as E;
        if !bytes.starts_with(SIGNATURE) {
            let is_text = bytes.starts_with(TEXT_SIGNATURE);
            return Err(if is_text { E::Version1 } else { E::Absent });
        }
        let [version_and_command, family, ref length @ ..] = bytes[SIGNATURE.len()..] else {
            return Err(E::Absent);
        };
        let command = match (version_and_command >> 4, version_and_command & 0x0f) {
            (2, 0) => Command::Local,
            (2, 1) => Command::Proxy,
            (2, command) => return Err(E::Command(command)),
            (version, _) => return Err(E::Version(version)),
        };
        let family = match (command, family) {
            // Its addresses are to be ignored, of whatever family they are.
            (Command::Local, _) | (Command::Proxy, 0x00) => Family::Unspecified,
            (Command::Proxy, 0x11) => Family::Tcp4,
            (Command::Proxy, 0x21) => Family::Tcp6,
            (Command::Proxy, family) => return Err(E::Family(family)),
        };
        let rest_bytes = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        if rest_bytes > REST_BYTES_MAX {
            return Err(E::TooLong(rest_bytes));
        }
        Ok(Self { command, family, rest_bytes })
    }

    /// Parses the rest, which has `rest_bytes` bytes.
    ///
    /// # Errors
    /// The addresses or the extensions are malformed.
    pub fn client(self, rest: &[u8]) -> Result<ProxiedClient, ProxyHeaderError> {
        let too_short = ProxyHeaderError::TooShort(rest.len());
        let (client, extensions) = match self.family {
            Family::Unspecified => return Ok(ProxiedClient::Proxy),
            Family::Tcp4 => {
                let (addresses, rest) = rest.split_at_checked(IPV4_BYTES).ok_or(too_short)?;
                let source: [u8; 4] = addresses[..4].try_into().map_err(|_| too_short)?;
                (IpAddr::from(Ipv4Addr::from(source)), rest)
            }
            Family::Tcp6 => {
                let (addresses, rest) = rest.split_at_checked(IPV6_BYTES).ok_or(too_short)?;
                let source: [u8; 16] = addresses[..16].try_into().map_err(|_| too_short)?;
                (IpAddr::from(Ipv6Addr::from(source)).to_canonical(), rest)
            }
        };
        check_extensions(extensions)?;
        Ok(ProxiedClient::Address(client))
    }
}

/// Checks that type, length and value of each extension end with the header.
fn check_extensions(mut rest: &[u8]) -> Result<(), ProxyHeaderError> {
    while !rest.is_empty() {
        let [_, high, low, values @ ..] = rest else { return Err(ProxyHeaderError::Extension) };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        rest = values.get(length..).ok_or(ProxyHeaderError::Extension)?;
    }
    Ok(())
}

/// Parses a whole header: any bytes are an error or an address.
///
/// # Errors
/// They are no such header, or it is incomplete.
pub fn parse(bytes: &[u8]) -> Result<ProxiedClient, ProxyHeaderError> {
    let (fixed, rest) = bytes.split_first_chunk::<FIXED_BYTES>().ok_or(ProxyHeaderError::Absent)?;
    let fixed = FixedPart::parse(fixed)?;
    let rest = rest.get(..fixed.rest_bytes).ok_or(ProxyHeaderError::TooShort(rest.len()))?;
    fixed.client(rest)
}

#[cfg(test)]
mod tests;
