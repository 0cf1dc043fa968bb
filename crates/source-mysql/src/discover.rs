//! Discovery of a server's tables for a first configuration. It changes nothing: the checks are
//! those of a start.

mod listing;
mod setup;

use std::sync::Arc;
use std::time::Duration;

use hotrow_source::background::Background;
use hotrow_source::default_key::DefaultKeys;
use hotrow_source::discovery::{self, Configure, Discovered, Engine, ListedTable, Request};
use hotrow_source::preflight;
use hotrow_supervisor::Supervisor;
use mysql_async::prelude::Queryable as _;

use super::config::Config;
use super::connect::{self, Session};
use super::error::full_text;
use super::inspect::{Table, TableName};
use super::server::Flavor;
use super::target::Target;
use super::{CHECKS_TIMEOUT, Finding, OpenError, blockers, checks, inspect, inspect_despite_locks};

/// Lists the tables of a server, and checks each with the settings that `configure` chooses. The
/// collections of `config` are not used. Blocks for up to the connection time-out of each host plus
/// twice the request's time limit.
///
/// # Errors
/// The server cannot be reached, or the tables cannot be listed.
pub fn discover(
    mut config: Config,
    request: &Request,
    configure: &Configure<'_>,
) -> Result<Discovered, OpenError> {
    let (readers, for_feed) = preflight::targets(&config.server, Target::parse)?;
    let (background, mut session) = connected(&config, request.timeout)?;
    let limit = request.timeout;
    let database = readers.database.clone();
    let wanted = request.clone();
    let asked = request.clone();
    let (session, listing::Listed { tables, is_cut }) = background.run(async move {
        let listed = listing::list(&mut session, &database, &wanted);
        let listed = preflight::within(limit, listed).await?;
        Ok::<_, OpenError>((session, listed))
    })?;
    let flavor = if session.identity.flavor == Flavor::MariaDb { "MariaDB" } else { "MySQL" };
    let database = format!("{flavor}, database {}", readers.database);
    let configs = configure(&tables);
    config.server.collections.clone_from(&configs);
    let config = Arc::new(config);
    let names: Vec<TableName> = tables.iter().map(name).collect();
    let checked = background.run(async move {
        let checks = check(session, &config, &readers, &for_feed, &names, &asked);
        preflight::within(limit, checks).await
    })?;
    let unknown = request.unknown(&tables);
    Ok(Discovered {
        engine: Engine::Mysql,
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
/// The server cannot be reached, or does not answer.
pub fn default_keys(config: &Config, names: &[String]) -> Result<DefaultKeys, OpenError> {
    let (target, _) = preflight::targets(&config.server, Target::parse)?;
    let specs = config.server.collections_named(names);
    let (background, session) = connected(config, config.server.read_timeout)?;
    let found = async move {
        let Session { mut conn, identity, .. } = session;
        loop {
            match inspect::default_keys(&mut conn, &identity, &target.database, &specs).await {
                // A schema change may lock a table for longer than a read may take.
                Err(e) if blockers::is_wait(&e) => {}
                found => return found.map_err(|e| failed(&e)),
            }
        }
    };
    background.run(preflight::within(CHECKS_TIMEOUT, found))
}

/// Runs statements one after another. Blocks as long as [`default_keys`].
///
/// # Errors
/// The server cannot be reached, or refuses a statement. Those before it are done.
pub fn apply(config: &Config, statements: Vec<String>) -> Result<(), OpenError> {
    let (background, mut session) = connected(config, CHECKS_TIMEOUT)?;
    background.run(async move {
        // Sessions of this engine read only.
        let writable = "SET SESSION TRANSACTION READ WRITE".to_owned();
        for sql in std::iter::once(writable).chain(statements) {
            session.conn.query_drop(sql).await.map_err(|e| failed(&e))?;
        }
        Ok(())
    })
}

/// Opens a session whose statements have this time limit.
fn connected(config: &Config, limit: Duration) -> Result<(Background, Session), OpenError> {
    let (target, _) = preflight::targets(&config.server, Target::parse)?;
    let background = Background::start("mysql", &Supervisor::default())?;
    let settings = config.server.session(limit);
    let session = background.run(async move {
        connect::primary(&target, settings, None).await.map_err(OpenError::Unreachable)
    })?;
    Ok((background, session))
}

fn name(table: &ListedTable) -> TableName {
    TableName { schema: table.schema.clone(), table: table.name.clone() }
}

fn failed(e: &mysql_async::Error) -> OpenError {
    OpenError::Failed { detail: full_text(e) }
}

/// Findings of a discovery.
struct Findings {
    of_tables: Vec<Vec<Finding>>,
    of_all: Vec<Finding>,
}

/// Runs the checks of a start; `names`: those of the tables that the collections should be.
async fn check(
    mut session: Session,
    config: &Config,
    target: &Target,
    for_feed: &Target,
    names: &[TableName],
    request: &Request,
) -> Result<Findings, OpenError> {
    let specs = &config.server.collections;
    let inspected = inspect_despite_locks(&mut session, config, target).await?;
    let is_other =
        |i: usize, table: &Table| names.get(i).is_some_and(|name| name != table.read_name());
    let (served, of_tables) = discovery::divided(inspected, specs, is_other);
    let served: Vec<Table> = served.into_iter().map(|(_, table)| table).collect();
    if !request.is_for_setup {
        let of_all = checks::feed(config, for_feed, &session.identity, &served, Vec::new()).await?;
        return Ok(Findings { of_tables, of_all });
    }
    let Session { conn, identity, .. } = &mut session;
    let databases = match request.schemas.as_slice() {
        [] => vec![target.database.clone()],
        schemas => schemas.to_vec(),
    };
    let role = request.role.as_deref();
    let setup = setup::findings(conn, identity, role, &databases, !names.is_empty()).await;
    let setup = setup.map_err(|e| failed(&e))?;
    let of_all = match (setup.is_empty(), role) {
        (true, None) => checks::feed(config, for_feed, identity, &served, setup).await?,
        _ => {
            let settings = checks::settings(conn, identity, config, &served).await;
            let mut of_all = settings.map_err(|e| failed(&e))?;
            of_all.extend(setup);
            of_all
        }
    };
    Ok(Findings { of_tables, of_all })
}
