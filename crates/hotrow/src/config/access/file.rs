//! A file of grants: the tables `roles`, `keys` and `certificates`, as in `[access]`. The server
//! reads it again when it changes, and uses the parser that is made here.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hotrow_access::grant::Roles;
use hotrow_config::access::{Access, Granted, GrantsFile, Names};
use toml::de::DeTable;

use super::principals::{Principals, principals};
use super::{NO_CLIENT_CA, NO_CREDENTIAL};
use crate::config::problem::shown;
use crate::config::reader::{Section, line_of};
use crate::config::{ConfigError, Problem, context, read};

/// What the rules of the file refer to.
pub(super) struct Named {
    pub(super) collections: Vec<String>,
    pub(super) rate_classes: Vec<String>,
    pub(super) has_client_ca: bool,
    pub(super) anonymous_role: Option<String>,
    pub(super) has_tokens: bool,
}

/// Returns the file, not yet read.
pub(super) fn grants_file(path: PathBuf, named: Named) -> GrantsFile {
    let name = path.display().to_string();
    let parse = move |text: &[u8]| {
        let text = std::str::from_utf8(text).map_err(|_| "is not UTF-8 text".to_owned())?;
        parse(text, &name, &named).map_err(|error| error.to_string())
    };
    GrantsFile { path, text: Vec::new(), parse: Arc::new(parse) }
}

/// Reads the file that `access` names, if it does, and fills in what it has.
///
/// # Errors
/// The file cannot be read, or has a problem. `config`: the main file, for messages.
pub(in crate::config) fn read_grants(
    access: &mut Option<Access>,
    config: &Path,
) -> Result<(), ConfigError> {
    let Some(access) = access else { return Ok(()) };
    let Some(file) = &mut access.grants_file else { return Ok(()) };
    let refuse = |what: String| {
        let problem = Problem { line: None, path: "access.grants_file".to_owned(), what };
        ConfigError::sorted(&config.display().to_string(), vec![problem])
    };
    let path = file.path.display().to_string();
    let text = read(&file.path).map_err(|what| refuse(format!("{path} {what}")))?;
    let granted = (file.parse)(text.as_bytes()).map_err(refuse)?;
    file.text = text.into_bytes();
    access.granted = granted;
    Ok(())
}

fn parse(text: &str, file: &str, named: &Named) -> Result<Granted, ConfigError> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let syntax = |error: &toml::de::Error| Problem {
            line: error.span().map(|span| line_of(text, span.start)),
            path: String::new(),
            what: format!("this is not TOML: {}", error.message().trim()),
        };
        return Err(ConfigError::sorted(file, errors.iter().map(syntax).collect()));
    }
    let env = |name: &str| std::env::var(name);
    let ctx = context(text, &env);
    let mut root = Section::root(&ctx, table.get_ref());
    let collections: Vec<&str> = named.collections.iter().map(String::as_str).collect();
    let Principals { names, roles, keys, certificates, holders } =
        principals(&mut root, &collections, &named.rate_classes);
    let anonymous = match &named.anonymous_role {
        None => Roles::default(),
        Some(role) => match names.iter().position(|name| name == role) {
            Some(number) => Roles::single(number),
            None => {
                let what = "must have the role of access.anonymous_role,";
                root.refuse("roles", format!("{what} {}", shown(role)));
                Roles::default()
            }
        },
    };
    if names.is_empty() {
        root.refuse("roles", "must have a role, or nothing could be read: [roles.NAME]");
    }
    if !certificates.is_empty() && !named.has_client_ca {
        root.refuse("certificates", NO_CLIENT_CA);
    }
    let has_none = keys.is_empty() && certificates.is_empty();
    if has_none && !named.has_tokens && anonymous.is_empty() {
        root.refuse("keys", NO_CREDENTIAL);
    }
    root.finish();
    let problems = ctx.problems.into_inner();
    if !problems.is_empty() {
        return Err(ConfigError::sorted(file, problems));
    }
    let names = Names { roles: names, holders };
    Ok(Granted { roles, anonymous, keys, certificates, names })
}
