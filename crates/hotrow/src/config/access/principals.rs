//! Roles, API keys and client certificates: tables of `[access]`, or of a file of their own.
//!
//! Reference `configuration`: `[access.roles.NAME]`
//!
//! At most 64 roles.
//!
//! - `collections`: Collections it may read.
//! - `claim_values`: Values of the token's role claim that name it.
//! - `allow_no_cache`: With the collection's `allow_no_cache`: `Cache-Control: no-cache` counts.
//! - `allow_min_position`: With the collection's `allow_min_position`: `Hotrow-Min-Position`
//!   counts; otherwise 403.
//! - `strict`: With the collection's `strict`: `Hotrow-Min-Position: now` counts; otherwise 403.
//! - `rate_class`: Its holders are in this [rate class](access.md#rate-classes).
//!
//! Reference `configuration`: `[access.roles.NAME.columns.NAME]`
//!
//! Columns to which the role is limited in the collection of this name:
//! [access](access.md#columns).
//!
//! - `names`: Their names.
//!
//! Reference `configuration`: `[access.keys.NAME]`
//!
//! At most 10,000 [API keys](access.md#api-keys), made by `hotrow key new`.
//!
//! - `id`: Public part of the key.
//! - `sha256`: Hash of the key.
//! - `roles`: Roles of its holder.
//! - `tenant`: Its [tenants](access.md#tenants).
//!
//! Reference `configuration`: `[access.certificates.NAME]`
//!
//! At most 10,000 [client certificates](access.md#client-certificates). They need
//! `listen.tls.client_ca`.
//!
//! - `subject`: Subject, as `"CN=billing,O=Shop"`.
//! - `roles`: Roles of its holder.
//! - `tenant`: Its [tenants](access.md#tenants).

use std::collections::HashMap;

use hotrow_access::certificate::{
    CERTIFICATES_MAX, CertificateHolder, CertificateTable, SUBJECT_BYTES_MAX,
};
use hotrow_access::grant::{ROLES_MAX, RateClasses, Role, Roles, Scope};
use hotrow_access::identity::Identity;
use hotrow_access::key::{KEYS_MAX, KeyHash, KeyId, KeyTable, StoredKey};
use hotrow_config::access::HolderName;
use hotrow_types::columns::Columns;
use hotrow_types::key::CollectionId;
use hotrow_types::tenant::{TENANT_BYTES_MAX, TENANTS_MAX, Tenant, Tenants};

use super::list::list;
use crate::config::names::name_is_valid;
use crate::config::problem::shown;
use crate::config::reader::Section;

/// Collections of a role that may read all.
const ALL_COLLECTIONS: &str = "*";

/// Roles and the credentials that have them.
#[derive(Default)]
pub(super) struct Principals {
    /// Names of the roles, in the order of their numbers.
    pub(super) names: Vec<String>,
    pub(super) roles: Vec<Role>,
    pub(super) keys: Vec<StoredKey>,
    pub(super) certificates: Vec<CertificateHolder>,
    /// Names of the holders of keys and certificates.
    pub(super) holders: HashMap<Identity, HolderName>,
}

/// Reads the tables `roles`, `keys` and `certificates` of `section`. `classes`: names of the rate
/// classes.
pub(super) fn principals(
    section: &mut Section<'_>,
    collections: &[&str],
    classes: &[String],
) -> Principals {
    let roles = roles(section.section("roles"), collections, classes);
    let names: Vec<String> = roles.iter().map(|role| role.name.clone()).collect();
    let mut holders = HashMap::new();
    let keys = keys(section.section("keys"), &names, &mut holders);
    let certificates = certificates(section.section("certificates"), &names, &mut holders);
    Principals { names, roles, keys, certificates, holders }
}

fn roles(mut section: Section<'_>, collections: &[&str], classes: &[String]) -> Vec<Role> {
    let tables = section.sections();
    if tables.len() > ROLES_MAX {
        section.refuse_whole(&format!("may have at most {ROLES_MAX} roles, not {}", tables.len()));
    }
    let mut roles = Vec::new();
    for (name, mut table) in tables.into_iter().take(ROLES_MAX) {
        check_name(&name, &table);
        let scope = scope(&mut table, collections);
        let role = Role {
            columns: columns(table.section("columns"), collections, &scope),
            collections: scope,
            claim_values: list(&mut table, "claim_values", "the name of the role")
                .unwrap_or_else(|| vec![name.clone()]),
            name,
            no_cache: table.flag("allow_no_cache", false),
            min_position: table.flag("allow_min_position", false),
            strict: table.flag("strict", true),
            rate_classes: rate_class(&mut table, classes),
        };
        table.finish();
        roles.push(role);
    }
    roles
}

/// Reads the columns of a role, by collection.
fn columns(
    mut section: Section<'_>,
    collections: &[&str],
    scope: &Scope,
) -> Vec<(CollectionId, Columns)> {
    let mut all = Vec::new();
    for (name, mut table) in section.sections() {
        let names = list(&mut table, "names", "required");
        if names.is_none() && !table.has("names") && table.is_present() {
            table.refuse("names", "is required: the columns that the role may read");
        }
        // At most 1,000 collections.
        let index = collections.iter().position(|known| *known == name);
        match index.map(|index| CollectionId(index as u16)) {
            None => table.refuse_whole("must be named after a collection of this file"),
            Some(id) if !scope.contains(id) => {
                table.refuse_whole("must be one of the role's collections, which it may read");
            }
            Some(id) => {
                let names = names.unwrap_or_default();
                all.push((id, Columns::new(names.iter().map(String::as_str))));
            }
        }
        table.finish();
    }
    all
}

fn rate_class(table: &mut Section<'_>, classes: &[String]) -> RateClasses {
    let Some(name) = table.text("rate_class", "none", "a class of [limits.rate.NAME]") else {
        return RateClasses::default();
    };
    match classes.iter().position(|known| *known == name.value) {
        Some(number) => RateClasses::single(number),
        None => {
            let what = "must be in the list `classes` of a rule in [limits.rate.NAME], not";
            table.refuse("rate_class", format!("{what} {}", name.shown));
            RateClasses::default()
        }
    }
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

fn keys(
    mut section: Section<'_>,
    roles: &[String],
    holders: &mut HashMap<Identity, HolderName>,
) -> Vec<StoredKey> {
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
        let of_key = roles_of(&mut table, roles);
        let tenants = tenants(&mut table);
        table.finish();
        if let (Some(id), Some(hash)) = (id, hash) {
            holders.insert(Identity::of_key(id), HolderName::Key(name));
            keys.push(StoredKey { id, hash, roles: of_key, tenants });
        }
    }
    if let Err(error) = KeyTable::new(keys.clone()) {
        section.refuse_whole(&format!("{error}; make a new key with `hotrow key new`"));
    }
    keys
}

fn certificates(
    mut section: Section<'_>,
    roles: &[String],
    holders: &mut HashMap<Identity, HolderName>,
) -> Vec<CertificateHolder> {
    let tables = section.sections();
    if tables.len() > CERTIFICATES_MAX {
        let count = tables.len();
        section.refuse_whole(&format!("may have at most {CERTIFICATES_MAX} tables, not {count}"));
    }
    let mut certificates = Vec::new();
    for (name, mut table) in tables.into_iter().take(CERTIFICATES_MAX) {
        check_name(&name, &table);
        let subject = required(&mut table, "subject", "a distinguished name (RFC 4514)", |text| {
            match text.len() {
                1..=SUBJECT_BYTES_MAX => Ok(text.to_owned()),
                _ => Err(format!("must have 1 to {SUBJECT_BYTES_MAX} bytes")),
            }
        });
        let roles = roles_of(&mut table, roles);
        let tenants = tenants(&mut table);
        table.finish();
        let Some(subject) = subject else { continue };
        let identity = Identity::of_certificate(&subject);
        holders.insert(identity, HolderName::Certificate(name));
        certificates.push(CertificateHolder { subject, roles, tenants });
    }
    if let Err(error) = CertificateTable::new(certificates.clone()) {
        section.refuse_whole(&format!("{error}; keep one table, with all roles"));
    }
    certificates
}

/// Reads the roles of a credential.
fn roles_of(table: &mut Section<'_>, known: &[String]) -> Roles {
    let named = table.texts("roles", "required", "a role or a list of roles");
    if named.as_ref().is_none_or(Vec::is_empty) && table.is_present() {
        table.refuse("roles", "is required: a role or a list of roles");
    }
    named
        .unwrap_or_default()
        .iter()
        .fold(Roles::default(), |all, role| all.union(role_of(table, "roles", role, known)))
}

/// Reads the tenants of a key or a certificate.
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

pub(super) fn role_of(section: &Section<'_>, key: &str, name: &str, roles: &[String]) -> Roles {
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
