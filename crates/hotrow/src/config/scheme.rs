//! Schemes of database URLs: which engine a URL names, and the path that SQLite's names.

use std::path::PathBuf;

use super::problem::shown;

/// Examples in the refusal of a URL, which does not repeat the URL.
pub(super) const URL_FORMS: &str = "sqlite:shop.db, postgres://user@host/database, \
    mysql://user@host/database or mongodb://host/database";

/// Engine that a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Sqlite,
    Postgres,
    Mysql,
    Mongodb,
}

impl Scheme {
    /// Returns why the changes of the engine do not come from a hub; `None`: they may.
    pub(super) fn no_hub(self) -> Option<&'static str> {
        match self {
            Self::Postgres | Self::Mysql => None,
            Self::Sqlite => Some(
                "cannot be a hub: an SQLite file is on one machine, and each instance there \
                 follows it itself",
            ),
            Self::Mongodb => Some(
                "cannot be a hub for this database: this version has PostgreSQL, MariaDB and MySQL only",
            ),
        }
    }

    /// Returns the cargo feature that this build lacks for the engine, if any.
    pub(super) fn missing_feature(self) -> Option<&'static str> {
        let (feature, is_built_in) = match self {
            Self::Sqlite => return None,
            Self::Postgres => ("postgres", cfg!(feature = "postgres")),
            Self::Mysql => ("mysql", cfg!(feature = "mysql")),
            Self::Mongodb => ("mongodb", cfg!(feature = "mongodb")),
        };
        (!is_built_in).then_some(feature)
    }
}

/// Splits a URL into its scheme and the text after the colon. The URL may contain a password, so
/// messages repeat only the scheme.
pub(super) fn scheme(url: &str) -> Result<(Scheme, &str), String> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(format!(
            "must begin with a scheme, for instance {URL_FORMS}; there is no colon in it"
        ));
    };
    let known = match scheme {
        "sqlite" => Scheme::Sqlite,
        "postgres" | "postgresql" => Scheme::Postgres,
        "mysql" | "mariadb" => Scheme::Mysql,
        "mongodb" | "mongodb+srv" => Scheme::Mongodb,
        _ => {
            return Err(format!(
                "must be like {URL_FORMS}; the scheme {} is unknown",
                shown(scheme)
            ));
        }
    };
    Ok((known, rest))
}

/// Returns the file that `sqlite:FILE` names.
pub(super) fn sqlite_path(rest: &str) -> Result<PathBuf, String> {
    // Other tools write an absolute path as `sqlite:///var/shop.db`.
    let path = match rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            return Err(
                "has no host in it: write sqlite:relative.db or sqlite:/absolute.db".to_owned()
            );
        }
        None => rest,
    };
    if path.is_empty() || path.ends_with('/') {
        return Err("must name a file after sqlite:, for instance sqlite:shop.db".to_owned());
    }
    if path == ":memory:" {
        return Err(
            ":memory: cannot be shared with the program that writes it; name a file".to_owned()
        );
    }
    if path.contains(['?', '#', '\0']) {
        return Err(
            "must be sqlite: and a path alone; parameters (?, #) and NUL are not supported"
                .to_owned(),
        );
    }
    Ok(PathBuf::from(path))
}
