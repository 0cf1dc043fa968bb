//! Options of every command that sends requests to a service: TLS, credentials, headers. Secrets
//! come from files or from standard input, because every user of the machine can read the command
//! line of a process.

use std::path::PathBuf;

use clap::Args;
use hotrow_transport::credential::{self, CredentialError};
use hotrow_transport::target::Url;
use hotrow_transport::tls::{ClientIdentity, HttpVersion, Tls, TlsError, TlsOptions, Trust};

/// Options of the connection, and headers of every request.
#[derive(Clone, Debug, Args)]
pub struct TransportArgs {
    /// A header, as in 'Accept: text/html', or @FILE with one a line; may be repeated
    ///
    /// Credentials are accepted only in a file, because command lines would show them to all users:
    /// Authorization, Cookie, Proxy-Authorization, X-API-Key and X-Auth-Token are refused here.
    /// Host and User-Agent replace the defaults; Connection, Content-Length, Transfer-Encoding,
    /// Expect and Upgrade are refused. Results contain no header.
    #[arg(short = 'H', long, value_name = "HEADER", value_parser = header)]
    pub header: Vec<HeaderArg>,
    /// Send the token of this file, or of standard input (-), as Authorization: Bearer
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// HTTP/2: over TLS by ALPN, without TLS with prior knowledge
    #[arg(long)]
    pub http2: bool,
    /// Options of HTTPS.
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// Options of HTTPS.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsArgs {
    /// HTTPS: trust the certificates of this PEM file
    ///
    /// It replaces the system's roots and may contain a self-signed server certificate.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    cacert: Option<PathBuf>,
    /// HTTPS: verify nothing
    #[arg(long)]
    insecure: bool,
    /// HTTPS: the client's certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// HTTPS: the key of --cert, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl TlsArgs {
    fn is_given(&self) -> bool {
        self.insecure || self.cacert.is_some() || self.cert.is_some()
    }

    /// Returns the options for a connection of this protocol.
    pub fn options(&self, version: HttpVersion) -> TlsOptions {
        let trust = match (&self.cacert, self.insecure) {
            (Some(path), _) => Trust::Authority(path.clone()),
            (None, true) => Trust::Anyone,
            (None, false) => Trust::System,
        };
        let identity = self.cert.clone().zip(self.key.clone());
        let identity = identity.map(|(certificate, key)| ClientIdentity { certificate, key });
        TlsOptions { trust, identity, version }
    }
}

/// One `--header`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderArg {
    /// Name and value.
    Given(String, String),
    /// A file of headers.
    File(PathBuf),
    /// A credential of this name. Not a failure of the parser, because its message would repeat the
    /// value.
    Credential(String),
}

/// Reasons why these options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A file of credentials or headers.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// A credential on the command line.
    #[error(
        "{0} is a credential, which every user of this machine could read on the command line; use \
         --token-file FILE, or --header @FILE"
    )]
    CredentialOnCommandLine(String),
    /// TLS options without TLS.
    #[error("--cacert, --insecure, --cert and --key are for https:// URLs")]
    NotEncrypted,
    /// Two credentials of the same kind.
    #[error("--token-file and an Authorization header are two credentials; give one")]
    TwoCredentials,
}

impl TransportArgs {
    /// Returns the version of HTTP.
    pub fn version(&self) -> HttpVersion {
        if self.http2 { HttpVersion::Http2 } else { HttpVersion::Http1 }
    }

    /// Checks that options of TLS have a use.
    ///
    /// # Errors
    /// Fails when they are given and none of the URLs begins with `https://`.
    pub fn check<'a>(
        &self,
        mut urls: impl Iterator<Item = &'a String>,
    ) -> Result<(), TransportError> {
        let given = self.tls.is_given();
        // A weight may precede the scheme.
        if given && !urls.any(|url| url.to_ascii_lowercase().contains("https://")) {
            return Err(TransportError::NotEncrypted);
        }
        Ok(())
    }

    /// Returns the TLS client for a URL; `None` if it is not encrypted.
    ///
    /// # Errors
    /// Fails when a file cannot be used.
    pub fn tls(&self, url: &Url, version: HttpVersion) -> Result<Option<Tls>, TransportError> {
        if !url.secure {
            return Ok(None);
        }
        Ok(Some(Tls::new(&url.host, &self.tls.options(version))?))
    }

    /// Returns all headers, with those of files and the token.
    ///
    /// # Errors
    /// Fails when a file cannot be used.
    pub fn headers(&self) -> Result<Vec<(String, String)>, TransportError> {
        let mut headers = Vec::new();
        for argument in &self.header {
            match argument {
                HeaderArg::Given(name, value) => headers.push((name.clone(), value.clone())),
                HeaderArg::File(path) => headers.extend(credential::headers(path)?),
                HeaderArg::Credential(name) => {
                    return Err(TransportError::CredentialOnCommandLine(name.clone()));
                }
            }
        }
        if let Some(path) = &self.token_file {
            let named = |(name, _): &(String, String)| name.eq_ignore_ascii_case("authorization");
            if headers.iter().any(named) {
                return Err(TransportError::TwoCredentials);
            }
            headers.push(credential::token_header(path)?);
        }
        Ok(headers)
    }
}

fn header(text: &str) -> Result<HeaderArg, String> {
    if let Some(path) = text.strip_prefix('@') {
        return Ok(HeaderArg::File(path.into()));
    }
    let (name, value) =
        text.split_once(':').ok_or("must have a colon, as in 'Accept: text/html', or be @FILE")?;
    let name = name.trim();
    if credential::is_credential(name) {
        return Ok(HeaderArg::Credential(name.to_owned()));
    }
    Ok(HeaderArg::Given(name.to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        transport: TransportArgs,
    }

    fn parse(arguments: &[&str]) -> Result<TransportArgs, clap::Error> {
        let command = Command::try_parse_from([&["command"], arguments].concat());
        command.map(|command| command.transport)
    }

    #[test]
    fn credentials_are_refused_on_the_command_line_and_read_from_files() {
        for name in ["Authorization", "cookie", "X-API-Key"] {
            let parsed = parse(&["-H", &format!("{name}: hush")]).unwrap();
            let refused = parsed.headers().unwrap_err().to_string();
            assert!(refused.contains("--token-file") && !refused.contains("hush"), "{refused}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (token, lines) = (file("token", "hush\n"), file("lines", "X-API-Key: quiet\n"));
        let at_lines = format!("@{lines}");
        let found = parse(&["-H", "A:  b: c", "-H", &at_lines, "--token-file", &token]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let want = [pair("A", "b: c"), pair("X-API-Key", "quiet")];
        let want = [&want[..], &[pair("Authorization", "Bearer hush")]].concat();
        assert_eq!(found.unwrap().headers().unwrap(), want);
        let two = format!("@{}", file("two", "authorization: Basic x"));
        let both = parse(&["-H", &two, "--token-file", &token]).unwrap().headers();
        assert!(matches!(both, Err(TransportError::TwoCredentials)), "{both:?}");
    }

    #[test]
    fn options_of_tls_need_tls() {
        let plain = Url::parse("http://a/").unwrap();
        let tls = |arguments: &[&str], url| parse(arguments).unwrap().tls(url, HttpVersion::Http1);
        assert!(tls(&[], &plain).unwrap().is_none());
        for arguments in [&["--insecure"][..], &["--cacert", "x"], &["--cert", "x", "--key", "y"]] {
            let check = |url: &str| parse(arguments).unwrap().check([url.to_owned()].iter());
            assert!(matches!(check("http://a/"), Err(TransportError::NotEncrypted)));
            assert!(check("3*HTTPS://a/").is_ok());
        }
        let secure = Url::parse("https://a/").unwrap();
        assert!(tls(&["--insecure"], &secure).unwrap().is_some());
        let missing = tls(&["--insecure", "--cert", "/no/c", "--key", "/no/k"], &secure);
        let missing = missing.unwrap_err().to_string();
        assert!(
            missing.starts_with("/no/c cannot be used as the client's certificate"),
            "{missing}"
        );
        assert!(parse(&["--cert", "x"]).is_err() && parse(&["--key", "x"]).is_err());
    }
}
