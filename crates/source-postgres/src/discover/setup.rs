//! The checks of a start for a first configuration. What an administrator has to set up (server
//! settings, the role, its privileges, the publication) is a finding about the whole database, so
//! that one block of SQL is complete.

use hotrow_source::discovery::{self, Request};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::super::config::{Config, Follow};
use super::super::connect::Session;
use super::super::error::full_text;
use super::super::inspect::{self, Privileges, Table, concurrently, quote};
use super::super::publication::{self, Checked, Repair, Wanted};
use super::super::survey::wanted;
use super::super::target::Target;
use super::super::{Finding, OpenError, checks};

/// Findings of a discovery.
pub(super) struct Findings {
    pub(super) of_tables: Vec<Vec<Finding>>,
    pub(super) of_all: Vec<Finding>,
}

/// A role as the catalogue knows it.
struct Role {
    name: String,
    /// `None`: it does not exist.
    oid: Option<u32>,
    may_replicate: bool,
}

const ROLE_SQL: &str = "SELECT wanted, oid, coalesce(rolsuper OR rolreplication, false) \
    FROM (SELECT coalesce($1, current_user::text)) AS w(wanted) \
    LEFT JOIN pg_catalog.pg_roles ON rolname = wanted";

/// Tables of which a role may read nothing.
const UNREADABLE_SQL: &str = "SELECT oid FROM pg_catalog.pg_class WHERE oid = ANY ($2) AND \
    (NOT has_schema_privilege($1, relnamespace, 'USAGE') \
    OR NOT has_any_column_privilege($1, oid, 'SELECT'))";

/// Runs the checks of a start; `oids`: those of the tables that the collections should be.
pub(super) async fn check(
    session: &Session,
    config: &Config,
    for_feed: &Target,
    oids: &[u32],
    request: &Request,
) -> Result<Findings, OpenError> {
    let failed = |e: &tokio_postgres::Error| OpenError::Failed { detail: full_text(e) };
    let client = &session.client;
    let specs = &config.server.collections;
    let privileges = if request.is_for_setup { Privileges::Assumed } else { Privileges::Checked };
    let follow = config.server.follow;
    let inspected = inspect::tables(client, specs, privileges, follow).await;
    let inspected = inspected.map_err(|e| failed(&e))?;
    let is_other = |i: usize, table: &Table| oids.get(i).is_some_and(|oid| *oid != table.oid);
    let (served, of_tables) = discovery::divided(inspected, specs, is_other);
    let mut found = Findings { of_tables, of_all: Vec::new() };
    let role = role(client, request.role.as_deref()).await.map_err(|e| failed(&e))?;
    if request.role.is_none() {
        found.of_all = checks::server(config, for_feed, &session.identity).await?.0;
    } else {
        found.of_all = checks::settings(client, None).await.map_err(|e| failed(&e))?;
        found.of_all.extend(role.finding());
    }
    let wanted = |(i, table): &(usize, Table)| (*i, wanted(&specs[*i].name, table));
    let publishing = match request.is_for_setup {
        true => {
            let repair = if request.role.is_none() { Repair::Later } else { Repair::No };
            let readable = found.readable(client, &role, served, config).await;
            let readable: Vec<_> = readable.map_err(|e| failed(&e))?.iter().map(wanted).collect();
            found.publish(client, &config.publication, readable, repair).await
        }
        false if follow == Follow::Nothing => Ok(()),
        false => {
            let served = served.iter().map(wanted).collect();
            found.publish_alone(client, &config.publication, served).await
        }
    };
    publishing.map_err(|e| failed(&e))?;
    Ok(found)
}

impl Findings {
    /// Notes the tables that the role may not read, and returns those that it may read or will.
    async fn readable(
        &mut self,
        client: &Client,
        role: &Role,
        served: Vec<(usize, Table)>,
        config: &Config,
    ) -> Result<Vec<(usize, Table)>, tokio_postgres::Error> {
        let oids: Vec<u32> = served.iter().map(|(_, table)| table.oid).collect();
        let unreadable = match role.oid {
            None => oids,
            Some(role) => {
                let parameters: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] =
                    &[(&role, Type::OID), (&oids, Type::OID_ARRAY)];
                let rows = client.query_typed(UNREADABLE_SQL, parameters).await?;
                rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?
            }
        };
        // A role that may read some tables may be meant not to read the others.
        if unreadable.len() == served.len() {
            let tables = served.iter().map(|(_, table)| table);
            self.of_all.extend((!served.is_empty()).then(|| role.grants(tables)));
            return Ok(served);
        }
        let mut readable = Vec::with_capacity(served.len());
        for (i, table) in served {
            if unreadable.contains(&table.oid) {
                let wanted = wanted(&config.server.collections[i].name, &table);
                let add = publication::addition(client, &config.publication, &wanted).await?;
                self.of_tables[i].push(role.refusal(&wanted.collection, &table, add));
            } else {
                readable.push((i, table));
            }
        }
        Ok(readable)
    }

    /// Checks the publication for all tables together.
    async fn publish(
        &mut self,
        client: &Client,
        name: &str,
        tables: Vec<(usize, Wanted)>,
        repair: Repair<'_>,
    ) -> Result<(), tokio_postgres::Error> {
        if tables.is_empty() {
            return Ok(());
        }
        let (places, tables): (Vec<usize>, Vec<Wanted>) = tables.into_iter().unzip();
        let checked = publication::check(client, name, &tables, repair).await?;
        self.of_all.extend(checked.findings);
        self.of_all.extend(publication::all_lacking(name, &tables, &checked.lacking));
        for (collection, finding) in checked.narrowed {
            let place = tables.iter().position(|table| table.collection == collection);
            self.of_tables[places[place.unwrap_or_default()]].push(finding);
        }
        Ok(())
    }

    /// Checks the publication for each table alone: a finding may apply to some tables only, to
    /// those of another owner or to partitioned ones. What applies to all is left to the start,
    /// which reports it with its SQL.
    async fn publish_alone(
        &mut self,
        client: &Client,
        name: &str,
        tables: Vec<(usize, Wanted)>,
    ) -> Result<(), tokio_postgres::Error> {
        let alone = tables.iter().map(async |(_, table)| {
            publication::check(client, name, std::slice::from_ref(table), Repair::Later).await
        });
        let alone = concurrently(alone).await.into_iter().collect::<Result<Vec<Checked>, _>>()?;
        let is_of_all = alone.iter().all(|checked| !checked.findings.is_empty());
        for ((i, _), checked) in tables.iter().zip(alone) {
            let own = checked.lacking.into_iter().chain(checked.narrowed);
            self.of_tables[*i].extend(own.map(|(_, finding)| finding));
            self.of_tables[*i].extend(checked.findings.into_iter().filter(|_| !is_of_all));
        }
        Ok(())
    }
}

async fn role(client: &Client, name: Option<&str>) -> Result<Role, tokio_postgres::Error> {
    let rows = client.query_typed(ROLE_SQL, &[(&name, Type::TEXT)]).await?;
    // The query always returns one row.
    let [row] = &rows[..] else {
        return Ok(Role { name: String::new(), oid: None, may_replicate: false });
    };
    Ok(Role { name: row.try_get(0)?, oid: row.try_get(1)?, may_replicate: row.try_get(2)? })
}

impl Role {
    /// Returns what the role itself lacks.
    fn finding(&self) -> Option<Finding> {
        let role = quote(&self.name);
        match (self.oid, self.may_replicate) {
            (None, _) => Some(Finding::new(
                format!("there is no role `{}`", self.name),
                format!(
                    "CREATE ROLE {role} LOGIN REPLICATION;\nthen set its password, in psql: \
                     \\password {role}"
                ),
            )),
            (Some(_), false) => Some(Finding::new(
                format!("role `{}` may not replicate", self.name),
                format!("ALTER ROLE {role} REPLICATION;"),
            )),
            (Some(_), true) => None,
        }
    }

    /// Returns the finding about a role that may read no table.
    fn grants<'a>(&self, tables: impl Iterator<Item = &'a Table>) -> Finding {
        let role = quote(&self.name);
        let names: Vec<(String, String)> =
            tables.map(|table| (quote(&table.schema), table.sql_name())).collect();
        let mut schemas: Vec<&str> = names.iter().map(|(schema, _)| schema.as_str()).collect();
        schemas.dedup();
        let tables: Vec<&str> = names.iter().map(|(_, table)| table.as_str()).collect();
        Finding::new(
            format!("role `{}` may read none of the tables", self.name),
            format!(
                "GRANT USAGE ON SCHEMA {} TO {role};\nGRANT SELECT ON {} TO {role};",
                schemas.join(", "),
                tables.join(", ")
            ),
        )
    }

    /// Returns the finding about one table that it may not read; `add` adds it to the publication.
    fn refusal(&self, collection: &str, table: &Table, add: Option<String>) -> Finding {
        let mut remedy = self.grants(std::iter::once(table)).remedy;
        if let Some(add) = add {
            remedy = format!("{remedy}\n{add}");
        }
        let what = format!(
            "collection `{collection}`: role `{}` may not read {}",
            self.name,
            table.sql_name()
        );
        Finding::new(what, remedy)
    }
}
