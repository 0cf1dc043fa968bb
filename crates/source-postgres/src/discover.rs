//! Discovery of a database's tables for a first configuration. It changes nothing: the checks are
//! those of a start, without the creation of the publication.

mod listing;
mod setup;

use std::sync::Arc;
use std::time::Duration;

use hotrow_source::background::Background;
use hotrow_source::default_key::DefaultKeys;
use hotrow_source::discovery::{self, Configure, Discovered, Engine, Request};
use hotrow_source::preflight;
use hotrow_supervisor::Supervisor;
use tokio_postgres::Client;

use super::config::Config;
use super::connect::{self, Session};
use super::error::full_text;
use super::inspect;
use super::target::Target;
use super::{CHECKS_TIMEOUT, OpenError, set};

/// Lists the tables of a database, and checks each with the settings that `configure` chooses. The
/// collections of `config` are not used. Blocks for up to the connection time-out of each host plus
/// twice the request's time limit.
///
/// # Errors
/// The database cannot be reached, or the tables cannot be listed.
pub fn discover(
    mut config: Config,
    request: &Request,
    configure: &Configure<'_>,
) -> Result<Discovered, OpenError> {
    let (readers, for_feed) = preflight::targets(&config.server, Target::parse)?;
    let (background, session) = connected(&config, request.timeout)?;
    let limit = request.timeout;
    let asked = request.clone();
    let to_check = request.clone();
    let (session, listed) = background.run(async move {
        let listed = preflight::within(limit, listing::list(&session.client, &asked)).await?;
        Ok::<_, OpenError>((session, listed))
    })?;
    let database = readers.dbname;
    let database = format!("PostgreSQL {}, database {database}", session.identity.major);
    let listing::Listed { oids, tables, is_cut } = listed;
    let configs = configure(&tables);
    config.server.collections.clone_from(&configs);
    let config = Arc::new(config);
    let checked = background.run(async move {
        let checks = setup::check(&session, &config, &for_feed, &oids, &to_check);
        preflight::within(limit, checks).await
    })?;
    let unknown = request.unknown(&tables);
    Ok(Discovered {
        engine: Engine::Postgres,
        database,
        tables: discovery::joined(tables, configs, checked.of_tables),
        is_cut,
        findings: checked.of_all,
        unknown,
        lacks_positions: None,
    })
}

/// Looks up the keys of these collections, of which the configuration names none. Blocks for up to
/// the connection time-out of each host plus half a minute.
///
/// # Errors
/// The database cannot be reached, or does not answer.
pub fn default_keys(config: &Config, names: &[String]) -> Result<DefaultKeys, OpenError> {
    let specs = config.server.collections_named(names);
    let (background, session) = connected(config, CHECKS_TIMEOUT)?;
    background.run(async move {
        let found = inspect::default_keys(&session.client, &specs).await;
        found.map_err(|e| failed(&e))
    })
}

/// Runs statements one after another, each in a transaction of its own. Blocks as long as
/// [`default_keys`].
///
/// # Errors
/// The database cannot be reached, or refuses a statement. Those before it are done.
pub fn apply(config: &Config, statements: Vec<String>) -> Result<(), OpenError> {
    let (background, session) = connected(config, CHECKS_TIMEOUT)?;
    background.run(async move {
        // Sessions of this engine read only.
        let writable = "SET default_transaction_read_only = off".to_owned();
        for sql in std::iter::once(writable).chain(statements) {
            session.client.batch_execute(&sql).await.map_err(|e| failed(&e))?;
        }
        Ok(())
    })
}

/// Opens a session whose statements have this time limit.
fn connected(config: &Config, limit: Duration) -> Result<(Background, Session), OpenError> {
    let (target, _) = preflight::targets(&config.server, Target::parse)?;
    let background = Background::start("postgres", &Supervisor::default())?;
    let settings = config.server.session(limit);
    let session = background.run(async move {
        connect::primary(&target, settings, None).await.map_err(OpenError::Unreachable)
    })?;
    Ok((background, session))
}

fn failed(e: &tokio_postgres::Error) -> OpenError {
    OpenError::Failed { detail: full_text(e) }
}

/// Sets the time limit of the session's statements.
async fn limit_statements(client: &Client, limit: Duration) -> Result<(), OpenError> {
    set(client, &format!("SET statement_timeout = {}", limit.as_millis())).await
}
