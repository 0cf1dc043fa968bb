//! `[access]`: roles, API keys, and tokens.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hotrow_access::grant::{ROLES_MAX, Role, Roles, Scope};
use hotrow_access::jwks::KeySet;
use hotrow_access::key::{KEYS_MAX, KeyHash, KeyId, KeyTable, StoredKey};
use hotrow_access::key_refresh::RefreshConfig;
use hotrow_access::verify::TokenPolicy;
use hotrow_server::config::access::{Access, TokenKeys, Tokens};
use hotrow_types::columns::Columns;
use hotrow_types::key::CollectionId;
use hotrow_types::tenant::{TENANT_BYTES_MAX, TENANTS_MAX, Tenant, Tenants};

use super::collections::name_is_valid;
use super::problem::shown;
use super::reader::Section;
use super::units::{ms, s};

/// Collections of a role that may read all.
const ALL_COLLECTIONS: &str = "*";
/// Most values of the role claim for one role, audiences, or levels of the claim's path.
const LIST_MAX: usize = 64;
/// Most bytes of an issuer, an audience or a value of the role claim.
const TEXT_BYTES_MAX: usize = 512;
/// First pause after a file of keys could not be used.
const RETRY: Duration = Duration::from_secs(1);
/// Least time between two reads because of unknown keys.
const UNKNOWN_KEY_INTERVAL: Duration = Duration::from_secs(5);

/// Reads the section; `None` if the file has none, or a problem was recorded. `collections`: names
/// in their order.
pub(super) fn access(mut section: Section<'_>, collections: &[&str]) -> Option<Access> {
    let is_present = section.is_present();
    let anonymous = section.text("anonymous_role", "none", "the name of a role");
    let failures = failures(&mut section);
    let (names, roles): (Vec<String>, Vec<Role>) =
        roles(section.section("roles"), collections).into_iter().unzip();
    let keys = keys(section.section("keys"), &names);
    let tokens = tokens(section.section("jwt"));
    if !is_present {
        return None;
    }
    let anonymous = anonymous
        .map_or(Roles::default(), |name| role_of(&section, "anonymous_role", &name.value, &names));
    if names.is_empty() {
        section.refuse_whole("must have a role, or nothing could be read: [access.roles.NAME]");
    }
    if keys.is_empty() && tokens.is_none() && anonymous.is_empty() {
        section.refuse_whole(
            "must accept a credential: add [access.keys.NAME] (see `hotrow key new`) or \
             [access.jwt], or set anonymous_role",
        );
    }
    section.finish();
    Some(Access { roles, anonymous, keys, tokens, failures: failures? })
}

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

/// Reads the roles with their names.
fn roles(mut section: Section<'_>, collections: &[&str]) -> Vec<(String, Role)> {
    let tables = section.sections();
    if tables.len() > ROLES_MAX {
        section.refuse_whole(&format!("may have at most {ROLES_MAX} roles, not {}", tables.len()));
    }
    let mut roles = Vec::new();
    for (name, mut table) in tables.into_iter().take(ROLES_MAX) {
        check_name(&name, &table);
        let role = Role {
            collections: scope(&mut table, collections),
            columns: columns(table.section("columns"), collections),
            claim_values: list(&mut table, "claim_values", "the name of the role")
                .unwrap_or_else(|| vec![name.clone()]),
            no_cache: table.flag("allow_no_cache", false),
            min_position: table.flag("allow_min_position", false),
        };
        table.finish();
        roles.push((name, role));
    }
    roles
}

/// Reads the columns of a role, by collection.
fn columns(mut section: Section<'_>, collections: &[&str]) -> Vec<(CollectionId, Columns)> {
    let mut all = Vec::new();
    for (name, mut table) in section.sections() {
        let names = list(&mut table, "names", "required");
        if names.is_none() && !table.has("names") && table.is_present() {
            table.refuse("names", "is required: the columns that the role may read");
        }
        match collections.iter().position(|known| *known == name) {
            None => table.refuse_whole("must be named after a collection of this file"),
            Some(index) => {
                let names = names.unwrap_or_default();
                let columns = Columns::new(names.iter().map(String::as_str));
                // At most 1,000 collections.
                all.push((CollectionId(index as u16), columns));
            }
        }
        table.finish();
    }
    all
}

fn scope(table: &mut Section<'_>, collections: &[&str]) -> Scope {
    const RANGE: &str = "a list of collections, or \"*\" for all";
    let Some(names) = table.texts("collections", "required", RANGE) else {
        if !table.has("collections") && table.is_present() {
            table.refuse("collections", format!("is required: {RANGE}"));
        }
        return Scope::Listed(Vec::new());
    };
    if names == [ALL_COLLECTIONS] {
        return Scope::All;
    }
    let mut ids = Vec::with_capacity(names.len());
    for name in &names {
        match collections.iter().position(|known| known == name) {
            // At most 1,000 collections.
            Some(index) => ids.push(CollectionId(index as u16)),
            None => table.refuse(
                "collections",
                format!("must name collections of this file, or be \"*\", not {}", shown(name)),
            ),
        }
    }
    Scope::Listed(ids)
}

fn keys(mut section: Section<'_>, roles: &[String]) -> Vec<StoredKey> {
    let tables = section.sections();
    if tables.len() > KEYS_MAX {
        section.refuse_whole(&format!("may have at most {KEYS_MAX} keys, not {}", tables.len()));
    }
    let mut keys = Vec::new();
    for (name, mut table) in tables.into_iter().take(KEYS_MAX) {
        check_name(&name, &table);
        let id = required(&mut table, "id", "the id from `hotrow key new`", |text| {
            KeyId::parse(text.as_bytes())
        });
        let hash = required(&mut table, "sha256", "the sha256 from `hotrow key new`", |text| {
            KeyHash::parse(text)
        });
        let named = table.texts("roles", "required", "a role or a list of roles");
        if named.as_ref().is_none_or(Vec::is_empty) && table.is_present() {
            table.refuse("roles", "is required: a role or a list of roles");
        }
        let tenants = tenants(&mut table);
        let of_key = named
            .unwrap_or_default()
            .iter()
            .fold(Roles::default(), |all, role| all.union(role_of(&table, "roles", role, roles)));
        table.finish();
        if let (Some(id), Some(hash)) = (id, hash) {
            keys.push(StoredKey { id, hash, roles: of_key, tenants });
        }
    }
    if let Err(error) = KeyTable::new(keys.clone()) {
        section.refuse_whole(&format!("{error}; make a new key with `hotrow key new`"));
    }
    keys
}

/// Reads the tenants of a key.
fn tenants(table: &mut Section<'_>) -> Tenants {
    let named = table.texts("tenant", "none", "a text or a list of up to 64, of 1 to 255 bytes");
    let named = named.unwrap_or_default();
    let tenants: Vec<Tenant> = named.iter().filter_map(|name| Tenant::new(name)).collect();
    let is_valid = tenants.len() == named.len();
    match Tenants::new(tenants) {
        Ok(tenants) if is_valid => tenants,
        Ok(_) | Err(_) => {
            let rule = format!("1 to {TENANT_BYTES_MAX} bytes each, without U+FFFD");
            table.refuse("tenant", format!("must be at most {TENANTS_MAX} texts of {rule}"));
            Tenants::NONE
        }
    }
}

/// Reads a text that must be there. Refusals do not repeat it, because it may be a secret.
fn required<T, E: std::fmt::Display>(
    table: &mut Section<'_>,
    name: &'static str,
    range: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Option<T> {
    match table.text(name, "required", range) {
        Some(text) => parse(&text.value).map_err(|why| table.refuse(name, why)).ok(),
        None => {
            if !table.has(name) && table.is_present() {
                table.refuse(name, format!("is required: {range}"));
            }
            None
        }
    }
}

fn tokens(mut section: Section<'_>) -> Option<Tokens> {
    let issuer = list(&mut section, "issuer", "none");
    let audiences = list(&mut section, "audience", "none");
    let file = section.text("jwks_file", "none", "path of a JWKS (RFC 7517) with public keys");
    let secret = section.text("hs256_secret", "none", "32 to 1024 bytes, random");
    let role_claim = section.texts("role_claim", "\"roles\"", "a claim, or a path of claims");
    let tenant_claim = section.texts("tenant_claim", "none", "a claim, or a path of claims");
    let leeway = section.duration("leeway", s(30), ms(0)..=Duration::from_mins(5));
    let interval = section.duration("refresh", s(10), s(1)..=Duration::from_hours(24));
    let day = Duration::from_hours(24);
    let age_max = section.duration("jwks_max_age", day, s(10)..=Duration::from_hours(24 * 365));
    if !section.is_present() {
        return None;
    }
    let role_claim = role_claim.unwrap_or_else(|| vec!["roles".to_owned()]);
    for (name, path) in [("role_claim", Some(&role_claim)), ("tenant_claim", tenant_claim.as_ref())]
    {
        let is_path = |path: &Vec<String>| {
            (1..=LIST_MAX).contains(&path.len()) && !path.iter().any(String::is_empty)
        };
        if !path.is_none_or(is_path) {
            section.refuse(name, format!("must name 1 to {LIST_MAX} claims, none empty"));
        }
    }
    let issuers = issuer.unwrap_or_default();
    if issuers.len() > 1 {
        section.refuse("issuer", format!("must be one text, not {}", issuers.len()));
    }
    let audiences = audiences.unwrap_or_default();
    let keys = match (file, secret) {
        (Some(file), None) => {
            for (name, missing) in
                [("issuer", issuers.is_empty()), ("audience", audiences.is_empty())]
            {
                if missing {
                    let what = "is required with jwks_file: the same keys sign tokens for others";
                    section.refuse(name, what);
                }
            }
            if age_max < interval {
                section.refuse("jwks_max_age", "must not be less than access.jwt.refresh");
            }
            let refresh = RefreshConfig {
                interval,
                retry: RETRY,
                unknown_key_interval: UNKNOWN_KEY_INTERVAL,
                age_max,
            };
            Some(TokenKeys::File { path: PathBuf::from(file.value), refresh })
        }
        (None, Some(secret)) => {
            for name in ["refresh", "jwks_max_age"].into_iter().filter(|name| section.has(name)) {
                section.refuse(name, "has no meaning with hs256_secret, which is fixed");
            }
            let set = KeySet::from_secret(secret.value.as_bytes());
            let set = set.map_err(|why| section.refuse("hs256_secret", why)).ok();
            set.map(|set| TokenKeys::Secret(Arc::new(set)))
        }
        (Some(_), Some(_)) => {
            section
                .refuse("hs256_secret", "cannot be combined with jwks_file; keep one of the two");
            None
        }
        (None, None) => {
            section.refuse_whole("must have jwks_file or hs256_secret: the keys of its tokens");
            None
        }
    };
    let policy = TokenPolicy {
        issuer: issuers.into_iter().next(),
        audiences,
        leeway_s: leeway.as_secs(),
        role_claim,
        tenant_claim: tenant_claim.unwrap_or_default(),
    };
    section.finish();
    keys.map(|keys| Tokens { policy, keys })
}

/// Reads one text or a list of texts of bounded length, if the key is set.
fn list(section: &mut Section<'_>, name: &'static str, default: &str) -> Option<Vec<String>> {
    let list = section.texts(name, default, "a text or a list of up to 64, of 1 to 512 bytes")?;
    let fits = |text: &String| (1..=TEXT_BYTES_MAX).contains(&text.len());
    if !(1..=LIST_MAX).contains(&list.len()) || !list.iter().all(fits) {
        section.refuse(
            name,
            format!("must be 1 to {LIST_MAX} texts of 1 to {TEXT_BYTES_MAX} bytes each"),
        );
    }
    Some(list)
}

fn role_of(section: &Section<'_>, key: &str, name: &str, roles: &[String]) -> Roles {
    match roles.iter().position(|known| known == name) {
        Some(number) => Roles::single(number),
        None => {
            let what = "must name a role of this file ([access.roles.NAME]), not";
            section.refuse(key, format!("{what} {}", shown(name)));
            Roles::default()
        }
    }
}

fn check_name(name: &str, table: &Section<'_>) {
    if !name_is_valid(name) {
        table.refuse_whole(&format!(
            "the name must begin with a letter a to z and have at most 64 of a to z, 0 to 9, _ and \
             -, not {}",
            shown(name)
        ));
    }
}
