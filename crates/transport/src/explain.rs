//! Failures of a connection in words for the user: the rule that was broken, and what to do.

use std::io;

use rustls::AlertDescription;
use rustls::CertificateError::{
    BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
    NotValidYetContext, Other, UnknownIssuer,
};
use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};

use crate::target::Address;

/// The server's answer to HTTP/2 when it speaks only HTTP/1.1 on this port.
pub const NO_HTTP2: &str =
    "the server does not offer HTTP/2 here (ALPN); enable it there, or leave --http2 out";

/// Explains a failed TLS handshake.
pub fn tls(error: &rustls::Error) -> String {
    match error {
        InvalidMessage(_) => {
            "the server does not speak TLS on this port; try an http:// URL".to_owned()
        }
        InvalidCertificate(why) => certificate(why),
        AlertReceived(alert) => alert_text(*alert),
        other => format!("TLS: {other}"),
    }
}

fn certificate(why: &rustls::CertificateError) -> String {
    match why {
        // A signature of another authority of the same name does not fit.
        UnknownIssuer | BadSignature => {
            "the server's certificate is not signed by a trusted authority; name the \
                          authority with --cacert, or use --insecure"
                .to_owned()
        }
        NotValidForName | NotValidForNameContext { .. } => {
            "the server's certificate is for another name; use that name in the URL, or --insecure"
                .to_owned()
        }
        Expired | ExpiredContext { .. } => {
            "the server's certificate has expired; renew it, or use --insecure".to_owned()
        }
        NotValidYet | NotValidYetContext { .. } => {
            "the server's certificate is not valid yet; compare the clocks, or use --insecure"
                .to_owned()
        }
        Other(_) => "the server's certificate is an authority's, or its chain is broken; if it is \
                     self-signed, name it itself with --cacert, or use --insecure"
            .to_owned(),
        other => format!(
            "the server's certificate is not valid ({other}); use --insecure to connect anyway"
        ),
    }
}

fn alert_text(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the server requires a client certificate; name one with --cert and --key".to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::DecryptError
        | AlertDescription::UnknownCA
        | AlertDescription::UnsupportedCertificate => {
            format!("the server does not accept the client's certificate ({alert:?}); check --cert")
        }
        AlertDescription::NoApplicationProtocol => NO_HTTP2.to_owned(),
        other => format!("the server ended TLS ({other:?})"),
    }
}

/// Explains a failed connect or handshake on a socket.
pub fn socket(error: &io::Error, address: &Address) -> String {
    let wrapped = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(inner) = wrapped {
        return tls(inner);
    }
    match (error.kind(), address) {
        (io::ErrorKind::UnexpectedEof, _) => {
            "the server closed the connection during the TLS handshake; does it speak TLS?"
                .to_owned()
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            "no local port is free for another connection; leave --no-keepalive out, use fewer \
             connections, or widen net.ipv4.ip_local_port_range"
                .to_owned()
        }
        (io::ErrorKind::NotFound, Address::Unix(path)) => format!(
            "there is no socket {}; is the service running, with listen.unix set to it?",
            path.display()
        ),
        (io::ErrorKind::PermissionDenied, Address::Unix(path)) => format!(
            "this user may not write to the socket {}; see listen.unix_mode, or join its group",
            path.display()
        ),
        (io::ErrorKind::ConnectionRefused, Address::Unix(path)) => {
            format!("no process listens on the socket {}", path.display())
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_unix_socket_is_named_with_the_remedy() {
        let path = Address::Unix("/run/x.sock".into());
        for (kind, words) in [
            (io::ErrorKind::NotFound, "there is no socket /run/x.sock"),
            (io::ErrorKind::PermissionDenied, "may not write to the socket /run/x.sock"),
            (io::ErrorKind::ConnectionRefused, "no process listens on the socket /run/x.sock"),
        ] {
            let text = socket(&io::Error::from(kind), &path);
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn an_error_of_tls_inside_one_of_the_socket_is_found() {
        let inner = AlertReceived(AlertDescription::CertificateRequired);
        let error = io::Error::new(io::ErrorKind::InvalidData, inner);
        let text = socket(&error, &Address::Unix("/a".into()));
        assert!(text.contains("--cert and --key"), "{text}");
    }
}
