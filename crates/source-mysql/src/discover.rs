//! Discovery of a server's tables for a first configuration. It changes nothing: the checks are
//! those of a start.

mod listing;

use std::sync::Arc;

use hotrow_source::background::Background;
use hotrow_source::default_key::DefaultKeys;
use hotrow_source::discovery::{self, Configure, Discovered, ListedTable, Request};
use hotrow_source::preflight;
use hotrow_supervisor::Supervisor;

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
    let background = Background::start("mysql", &Supervisor::default())?;
    let settings = config.server.session(request.timeout);
    let limit = request.timeout;
    let target = readers.clone();
    let wanted = request.clone();
    let (session, listing::Listed { tables, is_cut }) = background.run(async move {
        let mut session =
            connect::primary(&target, settings, None).await.map_err(OpenError::Unreachable)?;
        let listed =
            preflight::within(limit, listing::list(&mut session, &target.database, &wanted))
                .await?;
        Ok::<_, OpenError>((session, listed))
    })?;
    let flavor = if session.identity.flavor == Flavor::MariaDb { "MariaDB" } else { "MySQL" };
    let database = format!("{flavor}, database {}", readers.database);
    let configs = configure(&tables);
    config.server.collections.clone_from(&configs);
    let config = Arc::new(config);
    let names: Vec<TableName> = tables.iter().map(name).collect();
    let checked = background.run(async move {
        preflight::within(limit, check(session, &config, &readers, &for_feed, &names)).await
    })?;
    let unknown = request.unknown(&tables);
    Ok(Discovered {
        database,
        tables: discovery::joined(tables, configs, checked.of_tables),
        is_cut,
        findings: checked.of_all,
        unknown,
    })
}

/// Looks up the keys of these collections, of which the configuration names none. Blocks for up to
/// the connection time-out of each host plus half a minute.
///
/// # Errors
/// The server cannot be reached, or does not answer.
pub fn default_keys(config: &Config, names: &[String]) -> Result<DefaultKeys, OpenError> {
    let (readers, _) = preflight::targets(&config.server, Target::parse)?;
    let background = Background::start("mysql", &Supervisor::default())?;
    let settings = config.server.session(config.server.read_timeout);
    let specs = config.server.collections_named(names);
    background.run(async move {
        let mut session =
            connect::primary(&readers, settings, None).await.map_err(OpenError::Unreachable)?;
        let found = async {
            let Session { conn, identity, .. } = &mut session;
            loop {
                let found = inspect::default_keys(conn, identity, &readers.database, &specs).await;
                match found {
                    // A schema change may lock a table for longer than a read may take.
                    Err(e) if blockers::is_wait(&e) => {}
                    found => return found.map_err(|e| failed(&e)),
                }
            }
        };
        preflight::within(CHECKS_TIMEOUT, found).await
    })
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
) -> Result<Findings, OpenError> {
    let specs = &config.server.collections;
    let inspected = inspect_despite_locks(&mut session, config, target).await?;
    let is_other =
        |i: usize, table: &Table| names.get(i).is_some_and(|name| name != table.read_name());
    let (served, of_tables) = discovery::divided(inspected, specs, is_other);
    let served: Vec<Table> = served.into_iter().map(|(_, table)| table).collect();
    let of_all = checks::feed(config, for_feed, &session.identity, &served, Vec::new()).await?;
    Ok(Findings { of_tables, of_all })
}
