//! Discovery of a database's tables for a first configuration. It changes nothing: the checks are
//! those of a start, without the creation of the publication.

mod listing;

use std::sync::Arc;
use std::time::Duration;

use hotrow_source::background::Background;
use hotrow_source::default_key::DefaultKeys;
use hotrow_source::discovery::{self, Configure, Discovered, Request};
use hotrow_source::preflight;
use hotrow_supervisor::Supervisor;
use tokio_postgres::Client;

use super::config::Config;
use super::connect::{self, Session};
use super::error::full_text;
use super::inspect::{self, Table, concurrently};
use super::publication::{self, Checked, Repair, Wanted};
use super::survey::wanted;
use super::target::Target;
use super::{CHECKS_TIMEOUT, Finding, OpenError, checks, set};

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
    let background = Background::start("postgres", &Supervisor::default())?;
    let settings = config.server.session(request.timeout);
    let database = readers.dbname.clone();
    let limit = request.timeout;
    let wanted_tables = request.clone();
    let (session, listed) = background.run(async move {
        let session =
            connect::primary(&readers, settings, None).await.map_err(OpenError::Unreachable)?;
        let listed =
            preflight::within(limit, listing::list(&session.client, &wanted_tables)).await?;
        Ok::<_, OpenError>((session, listed))
    })?;
    let database = format!("PostgreSQL {}, database {database}", session.identity.major);
    let listing::Listed { oids, tables, is_cut } = listed;
    let configs = configure(&tables);
    config.server.collections.clone_from(&configs);
    let config = Arc::new(config);
    let checked = background.run(async move {
        preflight::within(limit, check(&session, &config, &for_feed, &oids)).await
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
/// The database cannot be reached, or does not answer.
pub fn default_keys(config: &Config, names: &[String]) -> Result<DefaultKeys, OpenError> {
    let (readers, _) = preflight::targets(&config.server, Target::parse)?;
    let background = Background::start("postgres", &Supervisor::default())?;
    let settings = config.server.session(CHECKS_TIMEOUT);
    let specs = config.server.collections_named(names);
    background.run(async move {
        let session =
            connect::primary(&readers, settings, None).await.map_err(OpenError::Unreachable)?;
        let found =
            async { inspect::default_keys(&session.client, &specs).await.map_err(|e| failed(&e)) };
        preflight::within(CHECKS_TIMEOUT, found).await
    })
}

fn failed(e: &tokio_postgres::Error) -> OpenError {
    OpenError::Failed { detail: full_text(e) }
}

/// Findings of a discovery.
struct Findings {
    of_tables: Vec<Vec<Finding>>,
    of_all: Vec<Finding>,
}

/// Runs the checks of a start; `oids`: those of the tables that the collections should be.
async fn check(
    session: &Session,
    config: &Config,
    for_feed: &Target,
    oids: &[u32],
) -> Result<Findings, OpenError> {
    let specs = &config.server.collections;
    let inspected = inspect::tables(&session.client, specs).await.map_err(|e| failed(&e))?;
    let is_other = |i: usize, table: &Table| oids.get(i).is_some_and(|oid| *oid != table.oid);
    let (served, mut of_tables) = discovery::divided(inspected, specs, is_other);
    let served = served.iter().map(|(i, table)| wanted(&specs[*i].name, table)).collect();
    let (mut of_all, feed_session) = checks::server(config, for_feed, &session.identity).await?;
    let Some(feed_session) = feed_session else { return Ok(Findings { of_tables, of_all }) };
    let name = &config.publication;
    let checked = published(&feed_session.client, name, served).await.map_err(|e| failed(&e))?;
    for (collection, finding) in checked.of_tables {
        if let Some(i) = specs.iter().position(|spec| spec.name == collection) {
            of_tables[i].push(finding);
        }
    }
    of_all.extend(checked.of_all);
    Ok(Findings { of_tables, of_all })
}

/// Findings about the publication.
#[derive(Default)]
struct Published {
    of_tables: Vec<(String, Finding)>,
    of_all: Vec<Finding>,
}

/// Checks the publication for these tables. A finding about the publication as a whole may apply to
/// some tables only: to those of another owner, or to partitioned ones. Then each table is checked
/// alone.
async fn published(
    client: &Client,
    name: &str,
    served: Vec<Wanted>,
) -> Result<Published, tokio_postgres::Error> {
    let mut found = Published::default();
    let all = publication::check(client, name, &served, Repair::Later).await?;
    let whole = all.findings.clone();
    let served = found.note(all, served);
    if whole.is_empty() {
        return Ok(found);
    }
    let alone = served.iter().map(async |table| {
        publication::check(client, name, std::slice::from_ref(table), Repair::Later).await
    });
    let alone = concurrently(alone).await.into_iter().collect::<Result<Vec<Checked>, _>>()?;
    if alone.iter().all(|checked| !checked.findings.is_empty()) {
        found.of_all = whole;
        return Ok(found);
    }
    let mut fine = Vec::new();
    for (table, checked) in served.into_iter().zip(alone) {
        if checked.findings.is_empty() {
            fine.push(table);
        } else {
            let of_table = checked.findings.into_iter();
            found.of_tables.extend(of_table.map(|f| (table.collection.clone(), f)));
        }
    }
    let together = publication::check(client, name, &fine, Repair::Later).await?;
    found.of_all.clone_from(&together.findings);
    found.note(together, fine);
    Ok(found)
}

impl Published {
    /// Notes the findings of single tables, and returns the tables without one.
    fn note(&mut self, checked: Checked, tables: Vec<Wanted>) -> Vec<Wanted> {
        self.of_tables.extend(checked.lacking.into_iter().chain(checked.narrowed));
        let has_finding = |table: &Wanted| {
            self.of_tables.iter().any(|(collection, _)| *collection == table.collection)
        };
        tables.into_iter().filter(|table| !has_finding(table)).collect()
    }
}

/// Sets the time limit of the session's statements.
async fn limit_statements(client: &Client, limit: Duration) -> Result<(), OpenError> {
    set(client, &format!("SET statement_timeout = {}", limit.as_millis())).await
}
