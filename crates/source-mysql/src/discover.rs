//! Discovery of a server's tables for a first configuration. It changes nothing: the checks are
//! those of a start.

mod listing;

use std::sync::Arc;
use std::time::Duration;

use hotrow_source::background::Background;
use hotrow_source::discovery::{self, Configure, Discovered, ListedTable, Request};
use hotrow_source::preflight;
use hotrow_supervisor::Supervisor;

use super::config::Config;
use super::connect::{self, Session, Settings};
use super::error::full_text;
use super::inspect::{Table, TableName};
use super::server::Flavor;
use super::target::Target;
use super::{Finding, OpenError, checks, inspect_despite_locks};

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
    let (readers, for_feed) =
        preflight::targets(&config.server.url, config.server.feed_url.as_deref(), Target::parse)?;
    let background = Background::start("mysql", &Supervisor::default())?;
    let settings = Settings {
        statement_timeout: request.timeout,
        connect_timeout: config.server.connect_timeout,
    };
    let limit = request.timeout;
    let target = readers.clone();
    let wanted = request.clone();
    let (session, listing::Listed { tables, is_cut }) = background.run(async move {
        let mut session =
            connect::primary(&target, settings, None).await.map_err(OpenError::Unreachable)?;
        let listed = within(limit, listing::list(&mut session, &target.database, &wanted)).await?;
        Ok::<_, OpenError>((session, listed))
    })?;
    let flavor = if session.identity.flavor == Flavor::MariaDb { "MariaDB" } else { "MySQL" };
    let database = format!("{flavor}, database {}", readers.database);
    let configs = configure(&tables);
    config.server.collections.clone_from(&configs);
    let config = Arc::new(config);
    let names: Vec<TableName> = tables.iter().map(name).collect();
    let checked = background.run(async move {
        within(limit, check(session, &config, &readers, &for_feed, &names)).await
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

fn name(table: &ListedTable) -> TableName {
    TableName { schema: table.schema.clone(), table: table.name.clone() }
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, OpenError>>,
) -> Result<T, OpenError> {
    let late = || OpenError::Failed { detail: format!("no result within {limit:?}") };
    tokio::time::timeout(limit, work).await.map_err(|_| late())?
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
    let mut of_tables: Vec<Vec<Finding>> = vec![Vec::new(); specs.len()];
    let mut served: Vec<Table> = Vec::new();
    for (i, (table, spec)) in inspected.into_iter().zip(specs).enumerate() {
        let is_other = |table: &Table| names.get(i).is_some_and(|name| name != table.read_name());
        match table {
            Ok(table) if is_other(&table) => {
                of_tables[i].push(discovery::hidden_by_another(&spec.name, &spec.table));
            }
            Ok(table) => served.push(table),
            Err(findings) => of_tables[i] = findings,
        }
    }
    let of_all = checks::feed(config, for_feed, &session.identity, &served, Vec::new()).await?;
    Ok(Findings { of_tables, of_all })
}
