//! `[access]`: who may read what.
//!
//! Roles, API keys and certificates are tables of the section (`principals`), or of a file of their
//! own, which is read again when it changes (`file`).
//!
//! Reference `configuration`: `[access]`
//!
//! [Access](access.md). With this section `cache_control` defaults to `"private, no-cache"` and
//! must contain `private` or `no-store`, and an admin address other than loopback needs
//! `admin.token` or required client certificates.
//!
//! - `grants_file`: The tables `roles`, `keys` and `certificates` below, [read again when it
//!   changes](access.md#changing-grants).
//! - `anonymous_role`: Role of requests without a credential; otherwise 401.
//! - `failures_per_client`: Refused credentials of a client, before its new tokens get 429
//!   unchecked.

mod file;
mod list;
mod principals;
mod tokens;

use hotrow_access::grant::Roles;
use hotrow_config::access::{Access, Granted, Names};

pub(super) use self::file::read_grants;
use self::principals::{Principals, principals, role_of};
use self::tokens::tokens;
use super::reader::Section;

/// What the rules of the section refer to.
pub(super) struct Named<'a> {
    /// Names of the collections, in their order.
    pub(super) collections: &'a [&'a str],
    /// Names of the rate classes, in their order.
    pub(super) rate_classes: &'a [String],
    /// `true`: clients may send certificates.
    pub(super) has_client_ca: bool,
}

/// Reads the section; `None` if the file has none, or a problem was recorded.
pub(super) fn access(mut section: Section<'_>, named: &Named<'_>) -> Option<Access> {
    let is_present = section.is_present();
    let file =
        section.text("grants_file", "none", "path of a file of roles, keys and certificates");
    let anonymous = section.text("anonymous_role", "none", "the name of a role");
    let failures = failures(&mut section);
    let Principals { names, roles, keys, certificates, holders } =
        principals(&mut section, named.collections, named.rate_classes);
    let tokens = tokens(section.section("jwt"));
    if !is_present {
        return None;
    }
    if !certificates.is_empty() && !named.has_client_ca {
        section.refuse("certificates", NO_CLIENT_CA);
    }
    let anonymous_role = anonymous.map(|name| name.value);
    let (grants_file, anonymous) = match file {
        Some(path) => {
            for table in ["roles", "keys", "certificates"].into_iter().filter(|t| section.has(t)) {
                section.refuse(table, "must be in grants_file, if there is one");
            }
            let named = file::Named {
                collections: named.collections.iter().map(|name| (*name).to_owned()).collect(),
                rate_classes: named.rate_classes.to_vec(),
                has_client_ca: named.has_client_ca,
                anonymous_role,
                has_tokens: tokens.is_some(),
            };
            (Some(file::grants_file(path.value.into(), named)), Roles::default())
        }
        None => {
            let anonymous = anonymous_role.map_or(Roles::default(), |name| {
                role_of(&section, "anonymous_role", &name, &names)
            });
            if names.is_empty() {
                section.refuse_whole(
                    "must have a role, or nothing could be read: [access.roles.NAME]",
                );
            }
            if keys.is_empty()
                && certificates.is_empty()
                && tokens.is_none()
                && anonymous.is_empty()
            {
                section.refuse_whole(NO_CREDENTIAL);
            }
            (None, anonymous)
        }
    };
    section.finish();
    let failures = failures?;
    let names = Names { roles: names, holders };
    let granted = Granted { roles, anonymous, keys, certificates, names };
    Some(Access { granted, grants_file, tokens, failures })
}

const NO_CREDENTIAL: &str = "must accept a credential: add [access.keys.NAME] (see `hotrow key \
    new`), [access.certificates.NAME] or [access.jwt], or set anonymous_role";
const NO_CLIENT_CA: &str = "need listen.tls.client_ca, or no client could send a certificate";

fn failures(section: &mut Section<'_>) -> Option<hotrow_admission::rate::value::Rate> {
    const DEFAULT: &str = "60/m";
    const RANGE: &str = "a number per second, minute or hour, such as \"60/m\"";
    let text = section.text("failures_per_client", "\"60/m\"", RANGE);
    match text {
        None => DEFAULT.parse().ok(),
        Some(text) => text
            .value
            .parse()
            .map_err(|why| {
                section.refuse("failures_per_client", format!("{why}, not {}", text.shown));
            })
            .ok(),
    }
}
