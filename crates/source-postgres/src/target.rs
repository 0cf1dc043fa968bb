//! Connection string of a server in libpq's syntax, parsed into types.
//!
//! Source: PostgreSQL documentation, "Connection Strings" and "Parameter Key Words". The
//! environment (`PGHOST` and so on) and `~/.pgpass` are ignored: only the configuration counts, and
//! it can refer to environment variables itself.

mod syntax;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hotrow_source::connection_string::Password;
pub use hotrow_source::connection_string::TargetError;

/// Default port of a server.
const PORT: u16 = 5432;
/// Most hosts in one connection string.
const HOSTS_MAX: usize = 32;
/// Folder of the server's Unix socket on Debian and most distributions; elsewhere it is in `/tmp`.
const SOCKET_FOLDER: &str = "/var/run/postgresql";

/// A parsed connection string.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// At least one, in the order of the attempts.
    pub(crate) hosts: Vec<Host>,
    pub(crate) user: String,
    pub(crate) password: Option<Password>,
    pub(crate) dbname: String,
    /// Command-line options for the server's session.
    pub(crate) options: Option<String>,
    pub(crate) application_name: Option<String>,
    pub(crate) encryption: EncryptionSettings,
    pub(crate) channel_binding: Binding,
    pub(crate) keepalive: Keepalive,
    /// Time limit of connecting to one host, if the string sets one.
    pub(crate) connect_timeout: Option<Duration>,
}

/// One server as named in the string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// A name or an address; `address`, if given, replaces the DNS lookup.
    Tcp { name: String, address: Option<IpAddr>, port: u16 },
    /// The folder with the socket `.s.PGSQL.<port>`.
    Unix { folder: PathBuf, port: u16 },
}

/// Parameters for encryption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncryptionSettings {
    pub(crate) mode: SslMode,
    pub(crate) root: Root,
    /// Client certificate and key; without them libpq's own files are used if they exist.
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// Sends the host's name before encryption begins (SNI), as most gateways need.
    pub(crate) name_indication: bool,
    /// TLS begins without a request first (PostgreSQL 17).
    pub(crate) direct: bool,
}

/// `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SslMode {
    Disable,
    /// Plain first, TLS if the server requires it.
    Allow,
    /// TLS first, plain if the server does not support it.
    Prefer,
    /// TLS without a check of the server, unless a root certificate exists.
    Require,
    /// TLS with a certificate of a trusted authority.
    VerifyCa,
    /// Like `VerifyCa`, and the certificate must contain the host's name.
    VerifyFull,
}

/// `sslrootcert`: the trusted authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// libpq's own file, `~/.postgresql/root.crt`.
    Default,
    /// The authorities that the operating system trusts.
    System,
    File(PathBuf),
}

/// `channel_binding`: whether SCRAM must prove that there is no intermediary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    Disable,
    Prefer,
    Require,
}

/// Detection of a dead peer by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keepalive {
    pub(crate) enabled: bool,
    pub(crate) idle: Duration,
    pub(crate) interval: Duration,
    pub(crate) count: u32,
    pub(crate) user_timeout: Option<Duration>,
}

impl Default for Keepalive {
    /// Shorter than the kernel's two hours: a read must not wait for a connection that a firewall
    /// has dropped.
    fn default() -> Self {
        let idle = Duration::from_secs(15);
        let interval = Duration::from_secs(5);
        Self { enabled: true, idle, interval, count: 3, user_timeout: None }
    }
}

/// Encryption in one attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    Plain,
    /// TLS if the server offers it, otherwise plain on the same connection.
    IfOffered,
    Required,
}

impl Target {
    /// Parses a connection string in either of libpq's forms, URL or keywords.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub(crate) fn parse(text: &str) -> Result<Self, TargetError> {
        let mut builder = TargetBuilder::default();
        for (name, value) in syntax::parameters(text)? {
            builder.set(&name, value)?;
        }
        builder.finish(std::env::var("USER").ok())
    }

    /// Returns the encryption of the first attempt at a host, and of the next if the first fails
    /// because of encryption. Source: PostgreSQL documentation, "SSL Mode Descriptions".
    pub(crate) fn attempts(&self, host: &Host) -> &'static [Encryption] {
        match (host, self.encryption.mode) {
            // A Unix socket cannot be tapped.
            (Host::Unix { .. }, _) | (_, SslMode::Disable) => &[Encryption::Plain],
            (_, SslMode::Allow) => &[Encryption::Plain, Encryption::Required],
            (_, SslMode::Prefer) => &[Encryption::IfOffered, Encryption::Plain],
            (_, SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull) => {
                &[Encryption::Required]
            }
        }
    }
}

impl Host {
    /// Returns the path of the socket.
    pub(crate) fn socket(folder: &Path, port: u16) -> PathBuf {
        folder.join(format!(".s.PGSQL.{port}"))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { name, port, .. } if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp { name, port, .. } => write!(f, "{name}:{port}"),
            Self::Unix { folder, port } => write!(f, "{}", Self::socket(folder, *port).display()),
        }
    }
}

/// Parameters as parsed, before they are checked together.
#[derive(Default)]
struct TargetBuilder {
    hosts: Vec<String>,
    addresses: Vec<String>,
    ports: Vec<String>,
    user: Option<String>,
    password: Option<String>,
    dbname: Option<String>,
    options: Option<String>,
    application_name: Option<String>,
    mode: Option<SslMode>,
    root: Option<Root>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    no_name_indication: bool,
    direct: bool,
    binding: Option<Binding>,
    keepalive: Keepalive,
    connect_timeout: Option<Duration>,
}

impl TargetBuilder {
    fn set(&mut self, name: &str, value: String) -> Result<(), TargetError> {
        let list = |value: &str| value.split(',').map(|v| v.trim().to_owned()).collect();
        let some = |value: String| (!value.is_empty()).then_some(value);
        match name {
            "host" => self.hosts = list(&value),
            "hostaddr" => self.addresses = list(&value),
            "port" => self.ports = list(&value),
            "user" => self.user = some(value),
            "password" => self.password = some(value),
            "dbname" => self.dbname = some(value),
            "options" => self.options = some(value),
            "application_name" => self.application_name = some(value),
            "fallback_application_name" => {}
            "sslcert" => self.certificate = some(value).map(PathBuf::from),
            "sslkey" => self.key = some(value).map(PathBuf::from),
            "sslrootcert" => self.root = some(value).map(Root::named),
            "connect_timeout" => self.connect_timeout = seconds("connect_timeout", &value)?,
            _ => self.set_choice(name, &value)?,
        }
        Ok(())
    }

    fn set_choice(&mut self, name: &str, value: &str) -> Result<(), TargetError> {
        match name {
            "sslmode" => self.mode = Some(choice("sslmode", value, &SSL_MODES)?),
            "channel_binding" => self.binding = Some(choice("channel_binding", value, &BINDINGS)?),
            "sslnegotiation" => {
                self.direct =
                    choice("sslnegotiation", value, &[("postgres", false), ("direct", true)])?;
            }
            "sslsni" => {
                self.no_name_indication = choice("sslsni", value, &[("1", false), ("0", true)])?
            }
            "keepalives" => {
                self.keepalive.enabled = choice("keepalives", value, &[("1", true), ("0", false)])?
            }
            "keepalives_idle" => {
                set_if_some(&mut self.keepalive.idle, seconds("keepalives_idle", value)?)
            }
            "keepalives_interval" => {
                set_if_some(&mut self.keepalive.interval, seconds("keepalives_interval", value)?)
            }
            "keepalives_count" => {
                let count = number("keepalives_count", value)?;
                set_if_some(
                    &mut self.keepalive.count,
                    (count > 0).then_some(count.try_into().unwrap_or(u32::MAX)),
                );
            }
            "tcp_user_timeout" => {
                let millis = number("tcp_user_timeout", value)?;
                self.keepalive.user_timeout = (millis > 0).then(|| Duration::from_millis(millis));
            }
            // A server in recovery is skipped with any of these values.
            "target_session_attrs" => {
                choice(
                    "target_session_attrs",
                    value,
                    &[("read-write", ()), ("primary", ()), ("any", ())],
                )?;
            }
            "load_balance_hosts" => choice("load_balance_hosts", value, &[("disable", ())])?,
            "gssencmode" => choice("gssencmode", value, &[("disable", ()), ("prefer", ())])?,
            "client_encoding" => {
                choice(
                    "client_encoding",
                    &value.to_ascii_lowercase(),
                    &[("utf8", ()), ("utf-8", ()), ("auto", ())],
                )?;
            }
            _ => return Err(unsupported(name)),
        }
        Ok(())
    }

    fn finish(self, system_user: Option<String>) -> Result<Target, TargetError> {
        let hosts = self.hosts()?;
        let root = self.root.unwrap_or(Root::Default);
        let mode = match (self.mode, &root) {
            (None, Root::System) => SslMode::VerifyFull,
            (Some(mode), Root::System) if mode < SslMode::VerifyFull => {
                return Err(TargetError::together(
                    "has `sslrootcert=system` with a weaker `sslmode` than verify-full: \
                     anyone can get a certificate \
                     that the system trusts; use `sslmode=verify-full` or name your \
                     own authority's file",
                ));
            }
            (mode, _) => mode.unwrap_or(SslMode::Prefer),
        };
        if self.direct && mode < SslMode::Require {
            return Err(TargetError::together(
                "has `sslnegotiation=direct`, which needs `sslmode=require` or stronger",
            ));
        }
        if self.certificate.is_some() != self.key.is_some() {
            return Err(TargetError::together(
                "names only one of `sslcert` and `sslkey`; a client certificate needs both",
            ));
        }
        let user = self.user.or(system_user);
        let user = user.ok_or_else(|| {
            TargetError::together(
                "names no user; add `user=` or write `postgres://user@host/database`",
            )
        })?;
        Ok(Target {
            hosts,
            dbname: self.dbname.unwrap_or_else(|| user.clone()),
            user,
            password: self.password.map(Password),
            options: self.options,
            application_name: self.application_name,
            encryption: EncryptionSettings {
                mode,
                root,
                certificate: self.certificate,
                key: self.key,
                name_indication: !self.no_name_indication,
                direct: self.direct,
            },
            channel_binding: self.binding.unwrap_or(Binding::Prefer),
            keepalive: self.keepalive,
            connect_timeout: self.connect_timeout,
        })
    }

    fn hosts(&self) -> Result<Vec<Host>, TargetError> {
        let together = |detail: String| Err(TargetError::together(detail));
        let count = self.hosts.len().max(self.addresses.len()).max(1);
        if count > HOSTS_MAX {
            return together(format!("names {count} hosts; at most {HOSTS_MAX} are tried"));
        }
        for (name, values) in [("host", self.hosts.len()), ("hostaddr", self.addresses.len())] {
            if values != 0 && values != count {
                return together(format!(
                    "has {values} values in `{name}` for {count} hosts; give one for each"
                ));
            }
        }
        if self.ports.len() > 1 && self.ports.len() != count {
            return together(format!(
                "has {} ports for {count} hosts; give one for all or one for each",
                self.ports.len()
            ));
        }
        (0..count).map(|i| self.host(i)).collect()
    }

    fn host(&self, i: usize) -> Result<Host, TargetError> {
        let filled = |list: &[String]| list.get(i).filter(|v| !v.is_empty()).cloned();
        let port = match self.ports.get(i).or(self.ports.first()).map_or("", String::as_str) {
            "" => PORT,
            text => match text.parse() {
                Ok(port) if port > 0 => port,
                // Not shown: it may be a piece of a password with a raw `/` in it.
                _ => {
                    let detail = "has a port that is not a number from 1 to 65535 (write `/`, `@` \
                                  and `:` in a password as %2F, %40 and %3A)";
                    return Err(TargetError::together(detail));
                }
            },
        };
        let address = match filled(&self.addresses) {
            None => None,
            Some(text) => {
                let rule = "it must be an IPv4 or IPv6 address";
                let address = text.parse::<IpAddr>();
                Some(address.map_err(|_| TargetError::value("hostaddr", &text, rule))?)
            }
        };
        Ok(match (filled(&self.hosts), address) {
            (Some(folder), None) if folder.starts_with('/') => {
                Host::Unix { folder: folder.into(), port }
            }
            (Some(name), None) if name.starts_with('@') => {
                let rule = "a socket in the abstract namespace is not supported";
                return Err(TargetError::value("host", &name, rule));
            }
            (Some(name), address) => Host::Tcp { name, address, port },
            (None, Some(address)) => {
                Host::Tcp { name: address.to_string(), address: Some(address), port }
            }
            (None, None) => {
                let folder = if Path::new(SOCKET_FOLDER).is_dir() { SOCKET_FOLDER } else { "/tmp" };
                Host::Unix { folder: folder.into(), port }
            }
        })
    }
}

impl Root {
    fn named(value: String) -> Self {
        if value == "system" { Self::System } else { Self::File(value.into()) }
    }
}

const SSL_MODES: [(&str, SslMode); 6] = [
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];
const BINDINGS: [(&str, Binding); 3] =
    [("disable", Binding::Disable), ("prefer", Binding::Prefer), ("require", Binding::Require)];

fn choice<T: Copy>(
    name: &'static str,
    value: &str,
    choices: &[(&str, T)],
) -> Result<T, TargetError> {
    choices.iter().find(|(text, _)| *text == value).map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(text, _)| *text).collect();
        TargetError::value(name, value, &format!("possible here: {}", names.join(", ")))
    })
}

fn number(name: &'static str, value: &str) -> Result<u64, TargetError> {
    value
        .trim()
        .parse()
        .map_err(|_| TargetError::value(name, value, "it must be a whole number of 0 or more"))
}

/// Parses a time in seconds; `None` for 0, which means the default.
fn seconds(name: &'static str, value: &str) -> Result<Option<Duration>, TargetError> {
    number(name, value).map(|s| (s > 0).then(|| Duration::from_secs(s)))
}

fn set_if_some<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn unsupported(name: &str) -> TargetError {
    let instead = match name {
        "service" | "servicefile" => "write the service's settings into the connection string",
        "passfile" => {
            "put the password into an environment variable and write `${VARIABLE}` \
             in the configuration"
        }
        "sslpassword" => "use a key without a password, readable by this user only",
        "sslcrl" | "sslcrldir" => "revoked certificates cannot be looked up; remove it",
        "replication" => "the feed sets it by itself; remove it",
        _ => "remove it or correct its spelling",
    };
    TargetError::unsupported(name, instead)
}

#[cfg(test)]
mod tests;
