//! Connection strings.

use std::fmt;
use std::time::Duration;

use hotrow_source::connection_string::{RAW_DELIMITER, has_raw_delimiter};
use mongodb::options::{ClientOptions, ConnectionString, ReadConcernLevel, ReadPreference};

/// Parsed and checked connection string.
#[derive(Clone)]
pub(crate) struct Target {
    connection: ConnectionString,
    /// Database whose collections are served.
    pub(crate) database: String,
}

impl fmt::Debug for Target {
    /// Formats without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("database", &self.database).finish_non_exhaustive()
    }
}

/// Reason for which a text is no usable connection string. No message repeats a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The text cannot be parsed.
    #[error(
        "the connection string {detail}; \
         write `mongodb://user:password@host:27017/database`"
    )]
    Syntax {
        /// Problem of the syntax.
        detail: String,
    },
    /// The database is missing or cannot be served.
    #[error(
        "the connection string {detail}; name the database in the path, as in \
         `mongodb://host:27017/shop`"
    )]
    Database {
        /// Problem of the database.
        detail: String,
    },
    /// An option contradicts a guarantee of Hotrow.
    #[error("the connection string has `{option}`; {rule}")]
    Option {
        /// Name of the option.
        option: String,
        /// Reason and remedy.
        rule: &'static str,
    },
}

impl Target {
    /// Parses a connection string of either scheme, `mongodb:` or `mongodb+srv:`, without resolving
    /// names.
    pub(crate) fn parse(text: &str) -> Result<Self, TargetError> {
        if text.split_once("://").is_some_and(|(_, rest)| has_raw_delimiter(rest)) {
            return Err(TargetError::Syntax { detail: RAW_DELIMITER.into() });
        }
        let connection = ConnectionString::parse(text).map_err(|e| TargetError::Syntax {
            detail: format!("cannot be read: {}", without_secrets(&e.kind.to_string(), text)),
        })?;
        let database = connection.default_database.clone().filter(|name| !name.is_empty());
        let database =
            database.ok_or_else(|| TargetError::Database { detail: "names no database".into() })?;
        if ["admin", "config", "local"].contains(&database.as_str()) {
            let detail =
                format!("names `{database}`, which is MongoDB's own and has no change stream");
            return Err(TargetError::Database { detail });
        }
        let refuse = |option: &str, rule| Err(TargetError::Option { option: option.into(), rule });
        if connection
            .read_preference
            .as_ref()
            .is_some_and(|preference| *preference != ReadPreference::Primary)
        {
            return refuse("readPreference", "reads and the feed use the primary, so remove it");
        }
        if connection
            .read_concern
            .as_ref()
            .is_some_and(|concern| concern.level != ReadConcernLevel::Majority)
        {
            return refuse("readConcernLevel", "reads use `majority`, so remove it");
        }
        if connection.load_balanced == Some(true) {
            return refuse(
                "loadBalanced=true",
                "one server must answer reads and feed: connect to the deployment itself",
            );
        }
        Ok(Self { connection, database })
    }

    /// Returns the driver's options; resolves `mongodb+srv:` names. Options of the string have
    /// precedence over `settings`.
    ///
    /// # Errors
    /// Fails if a name cannot be resolved.
    pub(crate) async fn options(
        &self,
        name: &str,
        settings: Settings,
    ) -> Result<ClientOptions, mongodb::error::Error> {
        let mut options = ClientOptions::parse(self.connection.clone()).await?;
        options.app_name.get_or_insert_with(|| name.to_owned());
        options.connect_timeout.get_or_insert(settings.connect_timeout);
        options.server_selection_timeout.get_or_insert(settings.connect_timeout);
        options.max_pool_size = Some(settings.connections_max);
        options.min_pool_size = None;
        // The callers retry by themselves, within their own limits.
        options.retry_reads = Some(false);
        Ok(options)
    }
}

/// Limits of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Maximum number of connections to each server, without the driver's own monitors.
    pub(crate) connections_max: u32,
    pub(crate) connect_timeout: Duration,
}

/// Returns the driver's message, or a hint if the message contains a part of the user or the
/// password.
fn without_secrets(message: &str, url: &str) -> String {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    // Up to the last `@`, because a password may contain an unescaped one.
    let secret = after_scheme.rsplit_once('@').map_or("", |(before, _)| before);
    let mut pieces =
        secret.split(|c: char| !c.is_ascii_alphanumeric()).filter(|piece| piece.len() >= 3);
    if pieces.any(|piece| message.contains(piece)) {
        return "(`/`, `:`, `@` and `%` in a user or a password must be written as \
                %2F, %3A, %40 and %25)"
            .into();
    }
    message.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        Target::parse(url).map(|t| t.database).unwrap_err().to_string()
    }

    #[test]
    fn the_path_names_the_database() {
        for url in [
            "mongodb://127.0.0.1:27017/shop",
            "mongodb://u:p%40ss@a,b:27018/shop?replicaSet=rs0&tls=true&authSource=admin",
            "mongodb+srv://u:p@cluster.example/shop\
             ?retryWrites=true&w=majority&readPreference=primary",
            "mongodb://a/shop?readConcernLevel=majority&directConnection=true",
        ] {
            assert_eq!(Target::parse(url).unwrap().database, "shop", "{url}");
        }
        assert!(refusal("mongodb://a/").contains("names no database"));
        assert!(refusal("mongodb://a/local").contains("`local`"));
    }

    #[test]
    fn options_that_contradict_a_guarantee_are_refused_by_name() {
        for (url, option) in [
            ("mongodb://a/d?readPreference=secondary", "readPreference"),
            ("mongodb://a/d?readPreference=primaryPreferred", "readPreference"),
            ("mongodb://a/d?readConcernLevel=local", "readConcernLevel"),
            ("mongodb://a/d?loadBalanced=true", "loadBalanced"),
            ("postgres://a/d", "scheme"),
            ("not a url", "mongodb://user"),
        ] {
            assert!(refusal(url).contains(option), "{url}: {}", refusal(url));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_message_repeats_a_password(
            secret in "[a-z0-9/@:%?&=]{0,6}\
                       (s3cr3t|/s3cr3t|@s3cr3t|:s3cr3t|%zzs3cr3t)[/@:%?&=]{0,3}",
            tail in "(@host/db|@host:x/db|@host)"
        ) {
            let url = format!("mongodb://user:{secret}{tail}");
            if let Err(e) = Target::parse(&url) {
                proptest::prop_assert!(!e.to_string().contains("s3cr3t"), "{url}: {e}");
            }
            let shown = Target::parse(&url).map_or_else(|_| String::new(), |t| format!("{t:?}"));
            proptest::prop_assert!(!shown.contains("s3cr3t"));
        }
    }
}
