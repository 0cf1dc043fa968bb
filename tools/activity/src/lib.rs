//! What the sessions of a database wait for, by the server's own account.
//!
//! Reading order: [`connect`], [`statement`] (statements without literals), then one file per
//! engine. What the answers mean is decided in `diagnose`.

mod connection;
mod mongodb;
mod mysql;
mod postgres;
pub mod statement;

use std::time::Duration;

use hotrow_trial::observe::DatabaseProbe;
use hotrow_verify::database::Database;

/// Time limit of one look, including a reconnect.
pub const LOOK_TIME_MAX: Duration = Duration::from_secs(2);
/// Time limit of the first connection and look.
pub const FIRST_LOOK_TIME_MAX: Duration = Duration::from_secs(10);
/// Name of the observing session, where the engine has one.
const APPLICATION: &str = "hotrow";
/// Most lock waiters whose blockers are requested in one look: the request takes the server's lock
/// tables.
const WAITERS_MAX: usize = 100;

/// Connects to the database of this URL and looks once, so that a wrong URL is found before a load.
///
/// # Errors
/// Returns the reason. It contains no password.
pub fn connect(url: &str) -> Result<Box<dyn DatabaseProbe>, String> {
    let mut probe: Box<dyn DatabaseProbe> = match Database::parse(url)? {
        Database::Sqlite(_) => {
            return Err("SQLite has no server that could be asked; its lock waits are in the \
                        service itself"
                .to_owned());
        }
        Database::Postgres(url) => Box::new(postgres::PostgresProbe::new(&url)?),
        Database::Mysql(url) => Box::new(mysql::MysqlProbe::new(&url)?),
        Database::Mongodb(url) => Box::new(mongodb::MongodbProbe::new(&url)?),
    };
    let engine = probe.engine();
    probe.look().map_err(|error| format!("{engine}: {error}"))?;
    Ok(probe)
}

#[cfg(test)]
mod tests {
    mod servers;

    use super::*;

    #[test]
    fn an_engine_without_a_server_and_an_unknown_one_are_refused() {
        let refused = |url: &str| connect(url).err().expect("refused");
        assert!(refused("sqlite:///tmp/x.db").contains("SQLite has no server"));
        assert!(refused("oracle://a:secret@b/c").contains("must begin with"));
    }

    /// What a driver says about a wrong URL must not repeat its password.
    #[test]
    fn no_error_contains_the_password() {
        let urls = [
            "postgres://me:s3cret@127.0.0.1:1/db",
            "postgres://me:s3cret@127.0.0.1:port/db",
            "postgres://me:s3cret@127.0.0.1:1/db?sslmode=verify-full",
            "postgres://me:s3cret@127.0.0.1:1/db?nonsense=1",
            "postgres://127.0.0.1:1/db?user=me&password=s3cret&nonsense=1",
            "mysql://me:s3cret@127.0.0.1:1/db",
            "mysql://me:s3cret@127.0.0.1:port/db",
            "mysql://me:s3cret@127.0.0.1:1/db?nonsense=1",
            "mongodb://me:s3cret@127.0.0.1:port/db",
            "mongodb://me:s3cret@[/db",
            "mongodb://me:s3:cret@127.0.0.1/db?nonsense=1",
        ];
        for url in urls {
            let error = connect(url).err().unwrap_or_else(|| panic!("{url} was accepted"));
            assert!(!error.contains("s3cret") && !error.contains("cret@"), "{url}: {error}");
            assert!(!error.is_empty(), "{url}");
        }
    }
}
