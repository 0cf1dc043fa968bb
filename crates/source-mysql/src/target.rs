//! Connection strings and their parser.
//!
//! `mysql://user:password@host:3306/database?ssl-mode=required`; `mariadb:` is the same. The
//! parameters have the names of the servers' client options. Option files and environment variables
//! of those clients are ignored. The configuration itself can refer to environment variables.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use hotrow_source::connection_string::TargetError;
use hotrow_source::connection_string::{Password, RAW_DELIMITER, has_raw_delimiter};
use hotrow_types::key::percent_decode;

/// Default port.
const PORT: u16 = 3306;
/// Maximum of hosts in a connection string.
const HOSTS_MAX: usize = 32;

/// Parsed connection string.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// At least one host, in the order of attempts.
    pub(crate) hosts: Vec<Host>,
    pub(crate) user: String,
    pub(crate) password: Option<Password>,
    /// Database of tables that are named without one.
    pub(crate) database: String,
    pub(crate) encryption: Encryption,
    /// Time limit for a connection to one host, if the string has one.
    pub(crate) connect_timeout: Option<Duration>,
}

/// Server of a connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// Host name or address.
    Tcp { name: String, port: u16 },
    /// File of a Unix socket.
    Unix { path: PathBuf },
}

/// Encryption settings of a connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Encryption {
    pub(crate) mode: SslMode,
    /// Trusted certificates. None means those of the operating system.
    pub(crate) ca: Option<PathBuf>,
    /// Certificate and key of the client.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

/// `ssl-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SslMode {
    Disabled,
    /// TLS if the server supports it.
    Preferred,
    /// TLS without a check of the server's certificate.
    Required,
    /// TLS with a certificate of a trusted authority for this host's name.
    VerifyIdentity,
}

impl Target {
    /// Parses a connection string.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub(crate) fn parse(text: &str) -> Result<Self, TargetError> {
        let rest = ["mysql://", "mariadb://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        let rest = rest.ok_or_else(|| syntax("begins with neither `mysql://` nor `mariadb://`"))?;
        if has_raw_delimiter(rest) {
            return Err(syntax(RAW_DELIMITER));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) =
            credentials.split_once(':').map_or((credentials, None), |(u, p)| (u, Some(p)));
        let user = decode("the user", user)?;
        let database = decode("the database", database)?;
        if user.is_empty() {
            return Err(syntax(
                "names no user (a `/`, `@` or `:` in a password must be written as %2F, %40 or \
                 %3A)",
            ));
        }
        if database.is_empty() || database.contains('/') {
            return Err(syntax(
                "must name one database after the host (a `/` in a password must be written as \
                 %2F)",
            ));
        }
        let password = password.map(|p| decode("the password", p).map(Password)).transpose()?;
        let parameters = Parameters::read(query)?;
        Ok(Self {
            hosts: parameters.hosts(hosts)?,
            user,
            password: password.filter(|p| !p.0.is_empty()),
            database,
            connect_timeout: parameters.connect_timeout,
            encryption: parameters.encryption()?,
        })
    }
}

/// Parameters after the question mark.
#[derive(Default)]
struct Parameters {
    socket: Option<PathBuf>,
    mode: Option<SslMode>,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    connect_timeout: Option<Duration>,
}

impl Parameters {
    fn read(query: &str) -> Result<Self, TargetError> {
        let mut parameters = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| syntax("has a parameter without `=` after the `?`"))?;
            let name = decode("a parameter's name", name)?;
            let value = decode("a parameter's value", value)?;
            parameters.set(&name, value)?;
        }
        Ok(parameters)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), TargetError> {
        let path = |value: String| (!value.is_empty()).then(|| PathBuf::from(value));
        match name {
            "socket" => self.socket = path(value),
            "ssl-ca" => self.ca = path(value),
            "ssl-cert" => self.certificate = path(value),
            "ssl-key" => self.key = path(value),
            "ssl-mode" => self.mode = Some(ssl_mode(&value)?),
            "connect-timeout" => {
                let seconds = value.parse().ok().filter(|s| (1..=3600).contains(s));
                let rule = "it must be a whole number of seconds from 1 to 3600";
                let seconds =
                    seconds.ok_or_else(|| TargetError::value("connect-timeout", &value, rule))?;
                self.connect_timeout = Some(Duration::from_secs(seconds));
            }
            _ => return Err(unsupported(name)),
        }
        Ok(())
    }

    fn hosts(&self, text: &str) -> Result<Vec<Host>, TargetError> {
        match &self.socket {
            Some(path) if text.is_empty() || text == "localhost" => {
                return Ok(vec![Host::Unix { path: path.clone() }]);
            }
            Some(_) => {
                return Err(TargetError::together(
                    "names both a host and a `socket`; a socket leads to this machine: omit the \
                     host, as in `mysql://user@/database?socket=/run/mysqld/mysqld.sock`",
                ));
            }
            None if text.is_empty() => return Err(syntax("names no host")),
            None => {}
        }
        let hosts: Vec<Host> =
            text.split(',').take(HOSTS_MAX + 1).map(host).collect::<Result<_, _>>()?;
        if hosts.len() > HOSTS_MAX {
            return Err(syntax(&format!("names more than {HOSTS_MAX} hosts")));
        }
        Ok(hosts)
    }

    fn encryption(self) -> Result<Encryption, TargetError> {
        let together = |detail: &str| Err(TargetError::together(detail));
        let mode = self.mode.unwrap_or(SslMode::Preferred);
        if self.ca.is_some() && mode != SslMode::VerifyIdentity {
            return together(
                "names `ssl-ca` without `ssl-mode=verify-identity`: nothing would be checked \
                 against it; add the mode or remove the file",
            );
        }
        let identity = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                return together(
                    "names only one of `ssl-cert` and `ssl-key`; a client certificate needs both",
                );
            }
        };
        Ok(Encryption { mode, ca: self.ca, identity })
    }
}

fn host(text: &str) -> Result<Host, TargetError> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) =
                rest.split_once(']').ok_or_else(|| syntax("has a `[` without its `]`"))?;
            if !rest.is_empty() && !rest.starts_with(':') {
                return Err(syntax("has something after the `]` of an address that is no port"));
            }
            (address, rest.strip_prefix(':').unwrap_or(""))
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let name = decode("a host", name)?;
    if name.is_empty() {
        return Err(syntax("has an empty host"));
    }
    let port = match port {
        "" => PORT,
        text => match text.parse() {
            Ok(port) if port > 0 => port,
            // The value is not shown, because it may be a piece of a password with an unescaped
            // `/`.
            _ => {
                return Err(syntax(
                    "has a port that is no number from 1 to 65535 (a `/`, `@` or `:` in a password \
                     must be written as %2F, %40 or %3A)",
                ));
            }
        },
    };
    Ok(Host::Tcp { name, port })
}

fn ssl_mode(value: &str) -> Result<SslMode, TargetError> {
    match value.to_ascii_lowercase().replace('_', "-").as_str() {
        "disabled" => Ok(SslMode::Disabled),
        "preferred" => Ok(SslMode::Preferred),
        "required" => Ok(SslMode::Required),
        "verify-identity" => Ok(SslMode::VerifyIdentity),
        "verify-ca" => Err(TargetError::value(
            "ssl-mode",
            value,
            "a certificate is only checked together with the host's name: use verify-identity",
        )),
        _ => Err(TargetError::value(
            "ssl-mode",
            value,
            "supported: disabled, preferred, required, verify-identity",
        )),
    }
}

fn decode(what: &str, text: &str) -> Result<String, TargetError> {
    let decoded = percent_decode(text).map_err(|_| {
        syntax(&format!(
            "has broken percent-encoding in {what} (write % followed by two hexadecimal digits)"
        ))
    })?;
    match decoded.contains('\0') {
        true => Err(syntax(&format!("has a NUL byte in {what}"))),
        false => Ok(decoded.into_owned()),
    }
}

fn syntax(detail: &str) -> TargetError {
    TargetError::Syntax {
        detail: detail.into(),
        example: "mysql://user:password@host:3306/database",
    }
}

fn unsupported(name: &str) -> TargetError {
    let instead = match name {
        "sslmode" | "ssl_mode" | "require_ssl" | "useSSL" | "tls" | "ssl" => {
            "write `ssl-mode=disabled`, `preferred`, `required` or `verify-identity`"
        }
        "charset" | "collation" | "characterEncoding" => "texts always come as utf8mb4; remove it",
        "time_zone" | "timezone" | "loc" | "serverTimezone" => {
            "times always come in UTC; remove it"
        }
        "compress" | "compression" => "connections are not compressed; remove it",
        "password" | "user" => {
            "it belongs before the host, as in `mysql://user:password@host/database`"
        }
        _ => "remove it or correct its spelling",
    };
    TargetError::unsupported(name, instead)
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { name, port } if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp { name, port } => write!(f, "{name}:{port}"),
            Self::Unix { path } => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests;
