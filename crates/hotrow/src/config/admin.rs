//! `[admin]`: access to the admin address, and what carries its requests besides plain TCP.
//!
//! Reference `configuration`: `[admin]`
//!
//! - `token`: Token of admin requests other than health checks.
//! - `hosts`: [Names accepted](http.md#admin-api) beside IP addresses and `localhost`.
//! - `hot_keys`: The [most requested keys](http.md#admin-api), which may be personal, are sampled
//!   and shown.
//! - `ready_when`: [Rule of `/readyz`](rollout.md#when-an-instance-is-ready). `"serving"` with
//!   `when_stale = "stale"`, otherwise `"fresh"`.
//! - `ready_sources`: With [several sources](configuration.md#readiness), those for which the rule
//!   must hold.
//! - `unix`: Unix socket for the admin API too.
//! - `unix_mode`: Permissions of its file. `"0660"` without it.
//!
//! Reference `configuration`: `[admin.tls]`
//!
//! [TLS](http.md#tls) on the TCP address of the admin API, as in `[listen.tls]`. With `client_auth
//! = "required"`, health checks too need a certificate.
//!
//! - `cert`: As above.
//! - `key`: As above.
//! - `client_ca`: As above.
//! - `client_auth`: As above.

use hotrow_config::transport::Transport;
use hotrow_config::{ReadySources, ReadyWhen};

use super::carriers::{tls, unix};
use super::problem::shown;
use super::reader::Section;

const TOKEN_CHARS_MIN: usize = 16;
const TOKEN_CHARS_MAX: usize = 256;
/// Most host names; more than any service has.
const HOSTS_MAX: usize = 64;
/// Longest host name in DNS.
const HOST_BYTES_MAX: usize = 253;

/// Settings of `[admin]`.
pub(super) struct Admin {
    pub(super) token: Option<String>,
    pub(super) hosts: Vec<String>,
    pub(super) hot_keys: bool,
    /// `None`: by the policy of the cache.
    pub(super) ready_when: Option<ReadyWhen>,
    pub(super) ready_sources: ReadySources,
    pub(super) transport: Transport,
}

pub(super) fn admin(mut section: Section<'_>) -> Admin {
    let admin = Admin {
        token: token(&mut section),
        hosts: hosts(&mut section),
        hot_keys: section.flag("hot_keys", true),
        ready_when: ready_when(&mut section),
        ready_sources: section
            .choice("ready_sources", [("any", ReadySources::Any), ("all", ReadySources::All)]),
        transport: Transport {
            unix: unix(&mut section),
            tls: tls(section.section("tls")),
            ..Transport::default()
        },
    };
    section.finish();
    admin
}

fn token(section: &mut Section<'_>) -> Option<String> {
    let token =
        section.text("token", "none", "16 to 256 visible ASCII characters").map(|text| text.value);
    if let Some(token) = &token {
        let chars = token.chars().count();
        // The value is a secret: the message contains only its length.
        if !(TOKEN_CHARS_MIN..=TOKEN_CHARS_MAX).contains(&chars) {
            section.refuse(
                "token",
                format!("must have {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} characters, not {chars}"),
            );
        } else if !token.bytes().all(|b| b.is_ascii_graphic()) {
            section.refuse(
                "token",
                "must be made of visible ASCII characters, because it is sent in a header; the \
                 value is not shown here",
            );
        }
    }
    token
}

fn ready_when(section: &mut Section<'_>) -> Option<ReadyWhen> {
    const RANGE: &str = "\"fresh\" or \"serving\"";
    let text = section.text("ready_when", "by cache.when_stale", RANGE)?;
    let known = [ReadyWhen::Fresh, ReadyWhen::Serving];
    let named = known.into_iter().find(|rule| rule.label() == text.value);
    if named.is_none() {
        section.refuse("ready_when", format!("must be {RANGE}, not {}", text.shown));
    }
    named
}

/// Reads host names without a port, because a proxy may forward any port to this one.
fn hosts(section: &mut Section<'_>) -> Vec<String> {
    let hosts = section.texts("hosts", "none", "a list of up to 64 host names").unwrap_or_default();
    if hosts.len() > HOSTS_MAX {
        section
            .refuse("hosts", format!("must name at most {HOSTS_MAX} hosts, not {}", hosts.len()));
    }
    for host in hosts.iter().filter(|host| !is_host_name(host)) {
        let what =
            "must be host names such as \"hotrow.internal\", without scheme, port or wildcard, not";
        section.refuse("hosts", format!("{what} {}", shown(host)));
    }
    hosts
}

fn is_host_name(host: &str) -> bool {
    let in_label = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(in_label);
    host.len() <= HOST_BYTES_MAX && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use hotrow_config::transport::ClientCertificates;

    use super::super::{Overrides, Resolved, parse};

    fn resolved(text: &str) -> Result<Resolved, String> {
        let text = format!("{text}\n[source]\nurl = \"sqlite:x\"\n[collections.a]\n");
        let unset = |_: &str| Err(std::env::VarError::NotPresent);
        parse(&text, "f.toml", &unset, &Overrides::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_admin_address_has_carriers_of_its_own() {
        let text = "[admin]\nunix = \"/run/a.sock\"\nunix_mode = \"0600\"\n\
                    [admin.tls]\ncert = \"c\"\nkey = \"k\"";
        let server = resolved(text).unwrap().server;
        assert!(server.transport.tls.is_none() && server.transport.unix.is_none());
        let unix = server.admin_transport.unix.unwrap();
        assert_eq!((unix.path.to_str(), unix.mode), (Some("/run/a.sock"), 0o600));
        assert_eq!(server.admin_transport.tls.unwrap().clients, ClientCertificates::Ignored);
        for (bad, rule) in [
            ("[admin]\nunix = \"a.sock\"", "admin.unix: must be an absolute path"),
            ("[admin]\nunix_mode = \"0600\"", "has no meaning without unix"),
            ("[admin.tls]\ncert = \"c\"", "admin.tls.key: is required for TLS"),
            ("[listen]\nunix = \"/a\"\n[admin]\nunix = \"/a\"", "the path of listen.unix too"),
            (
                "[listen]\nhandover_socket = \"/a\"\n[admin]\nunix = \"/a\"",
                "the path of listen.handover_socket too",
            ),
        ] {
            let error = resolved(bad).unwrap_err();
            assert!(error.contains(rule), "{bad}: {error}");
        }
    }

    #[test]
    fn an_address_of_the_network_needs_a_token_or_client_certificates() {
        let network = "[listen]\nadmin = \"0.0.0.0:8081\"\n[access]\nanonymous_role = \"r\"\n\
                       [access.roles.r]\ncollections = \"*\"\n";
        let error = resolved(network).unwrap_err();
        assert!(error.contains("admin.token: is required"), "{error}");
        let tls = "[admin.tls]\ncert = \"c\"\nkey = \"k\"\nclient_ca = \"r\"\n";
        assert!(resolved(&format!("{network}{tls}")).unwrap().warnings.is_empty());
        let optional = format!("{network}{tls}client_auth = \"optional\"\n");
        assert!(resolved(&optional).unwrap_err().contains("admin.token: is required"));
    }
}
