//! `[admin]`: access to the admin address.

use hotrow_server::config::ReadyWhen;

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
}

pub(super) fn admin(mut section: Section<'_>) -> Admin {
    let admin = Admin {
        token: token(&mut section),
        hosts: hosts(&mut section),
        hot_keys: section.flag("hot_keys", true),
        ready_when: ready_when(&mut section),
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
