//! The connection string of `hotrow init`: where it comes from, and how the written file names it
//! without its password.

use std::env::VarError;
use std::fmt;

use hotrow_cli::output::print_line;

use crate::config::{self, Env, Overrides, SourceConfig};

use super::error::InitError;
use super::toml_text::quoted;

/// Prefix of `--from` that names an environment variable.
const VARIABLE_PREFIX: &str = "env:";
/// Variable in the written file if the command line names none.
pub(super) const DEFAULT_VARIABLE: &str = "DATABASE_URL";

/// Argument that may contain a password: a connection string, or `env:NAME`.
#[derive(Clone)]
pub(crate) struct ConnectionString(String);

impl fmt::Debug for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl ConnectionString {
    /// Returns whether an option was given without one.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::str::FromStr for ConnectionString {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

/// A connection string, and the variable that replaces it in the written file.
pub(crate) struct Origin {
    url: String,
    /// `None`: the connection string has no secret and is written as it is.
    pub(super) variable: Option<String>,
    /// The password was an argument, which other users of the machine can read.
    is_password_exposed: bool,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("variable", &self.variable).finish_non_exhaustive()
    }
}

impl Origin {
    /// Reads `--from`, a connection string or `env:NAME`. `variable`: `--url-env`.
    ///
    /// # Errors
    /// A variable has no valid name, or the one of `--from` is not set.
    pub(crate) fn read(
        ConnectionString(from): &ConnectionString,
        variable: Option<&str>,
        env: &Env<'_>,
    ) -> Result<Self, InitError> {
        let named = from.strip_prefix(VARIABLE_PREFIX);
        for name in named.into_iter().chain(variable) {
            if !is_variable(name) {
                return Err(InitError::VariableName(name.to_owned()));
            }
        }
        let url = match named {
            None => from.to_owned(),
            Some(name) => env(name).map_err(|e| InitError::Variable {
                name: name.to_owned(),
                problem: match e {
                    VarError::NotPresent => "is not set",
                    VarError::NotUnicode(_) => "is not valid UTF-8",
                },
            })?,
        };
        let may_be_secret = may_have_secret(&url);
        let default = may_be_secret.then_some(DEFAULT_VARIABLE);
        let variable = variable.or(named).or(default).map(str::to_owned);
        Ok(Self { is_password_exposed: named.is_none() && may_be_secret, url, variable })
    }

    /// Returns the value of `source.url` as TOML.
    pub(crate) fn setting(&self) -> String {
        match &self.variable {
            // The dollar sign of a variable is not doubled.
            Some(name) => format!("\"${{{name}}}\""),
            None => quoted(&self.url),
        }
    }

    /// Returns it as an argument of a command, without a password.
    pub(crate) fn shown(&self) -> String {
        match &self.variable {
            Some(name) => format!("{VARIABLE_PREFIX}{name}"),
            None => self.url.clone(),
        }
    }

    /// Returns the settings of the engine that the connection string names.
    ///
    /// # Errors
    /// The connection string is wrong. The message does not repeat it.
    pub(crate) fn source(&self) -> Result<SourceConfig, InitError> {
        let text = format!("[source]\nurl = {}\n[collections.any]\n", self.setting());
        let parsed = config::parse(&text, "--from", &self.environment(), &Overrides::default());
        // It has one source.
        parsed.map(|mut resolved| resolved.sources.remove(0)).map_err(|error| {
            let rules: Vec<String> = error.problems.into_iter().map(|p| p.what).collect();
            let rules = rules.join("; ");
            InitError::Url(rules.strip_prefix("the connection string ").unwrap_or(&rules).into())
        })
    }

    /// Warns of a password in an argument of `command`.
    pub(crate) fn warn_of_exposure(&self, command: &str, option: &str) {
        if self.is_password_exposed {
            let text = format!(
                "hotrow {command}: warning: other users of this machine can read the connection \
                 string in the list of processes; put it into an environment variable and pass \
                 {option}env:NAME"
            );
            print_line(std::io::stderr(), &text);
        }
    }

    /// Returns an environment in which the file's variable is set.
    pub(crate) fn environment(&self) -> impl Fn(&str) -> Result<String, VarError> + '_ {
        |name| match &self.variable {
            Some(variable) if variable == name => Ok(self.url.clone()),
            _ => Err(VarError::NotPresent),
        }
    }
}

/// Returns whether a shell can set a variable of this name.
fn is_variable(name: &str) -> bool {
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    !name.is_empty() && name.bytes().all(is_part) && !name.as_bytes()[0].is_ascii_digit()
}

/// Returns whether a connection string may contain a password: in its authority, or as one of its
/// parameters.
fn may_have_secret(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once(':') else { return true };
    let parameters = rest.split_once('?').map_or("", |(_, parameters)| parameters);
    let names_secret = parameters.to_ascii_lowercase().contains("pass");
    scheme != "sqlite" && (names_secret || credentials(rest).contains(':'))
}

/// Returns everything before the last `@`: a password may contain any character.
fn credentials(rest: &str) -> &str {
    let rest = rest.trim_start_matches('/');
    rest.rsplit_once('@').map_or("", |(credentials, _)| credentials)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(from: &str, variable: Option<&str>) -> Result<Origin, InitError> {
        Origin::read(&ConnectionString(from.to_owned()), variable, &|name| match name {
            "SHOP_URL" => Ok("mysql://u:pw$x@h/db".to_owned()),
            _ => Err(VarError::NotPresent),
        })
    }

    #[test]
    fn a_connection_string_with_a_secret_becomes_a_variable() {
        for (from, variable, setting, is_exposed) in [
            ("sqlite:a$b.db", None, "\"sqlite:a$$b.db\"", false),
            ("sqlite:/x:y@z.db", None, "\"sqlite:/x:y@z.db\"", false),
            ("postgres://u@h:5432/db", None, "\"postgres://u@h:5432/db\"", false),
            (
                "mysql://u@h/db?ssl-mode=required",
                None,
                "\"mysql://u@h/db?ssl-mode=required\"",
                false,
            ),
            ("postgres://u@h/db", Some("X"), "\"${X}\"", false),
            ("postgres://u:pw@h/db", None, "\"${DATABASE_URL}\"", true),
            ("postgres://u:p@w@h/db", None, "\"${DATABASE_URL}\"", true),
            ("postgres://u@h/db?password=pw", Some("X"), "\"${X}\"", true),
            ("env:SHOP_URL", None, "\"${SHOP_URL}\"", false),
            ("env:SHOP_URL", Some("X"), "\"${X}\"", false),
        ] {
            let origin = read(from, variable).expect(from);
            assert_eq!(
                (origin.setting().as_str(), origin.is_password_exposed),
                (setting, is_exposed)
            );
            assert!(!format!("{origin:?}").contains("pw"), "{from}");
        }
    }

    #[test]
    fn wrong_variables_and_connection_strings_are_refused_without_their_text() {
        for (from, variable, part) in [
            ("env:MISSING", None, "MISSING"),
            ("env:1A", None, "1A"),
            ("sqlite:x", Some("A-B"), "A-B"),
        ] {
            let text = read(from, variable).expect_err(from).to_string();
            assert!(text.contains(part), "{text}");
        }
        for url in ["nothing-secret-pw", "ftp://u:pw@h/db", "postgres://u:pw@h:port/db"] {
            let text = read(url, None).and_then(|origin| origin.source()).expect_err(url);
            assert!(matches!(text, InitError::Url(_)), "{text}");
            assert!(!text.to_string().contains("pw"), "{text}");
        }
    }
}
