//! The row as a model of SeaORM.
//!
//! SeaORM reaches the database through its proxy interface, over the same pool and driver as the
//! other methods, so that only the layers differ. For SQLite there is no alternative: SeaORM's own
//! drivers need another version of the C library, and a program can contain only one.

use std::collections::BTreeMap;
use std::sync::Arc;

use sea_orm::entity::prelude::async_trait::async_trait;
use sea_orm::{
    DatabaseConnection, DbBackend, DbErr, EntityTrait as _, ProxyDatabaseTrait, ProxyExecResult,
    ProxyRow, Statement,
};
use sea_query::{Value, Values};

use super::{DatabaseError, Row, Store};

/// A row of the table, as SeaORM knows it.
mod entity {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
    #[sea_orm(table_name = "reference_rows")]
    pub(super) struct Model {
        #[sea_orm(primary_key)]
        pub id: i32,
        pub random_number: i32,
    }

    #[derive(Clone, Copy, Debug, EnumIter, DeriveRelation)]
    pub(super) enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

/// Opens the ORM's connection over this store.
pub(super) async fn connect(store: &Store) -> Result<DatabaseConnection, DatabaseError> {
    let backend = match store {
        Store::Sqlite(_) => DbBackend::Sqlite,
        Store::Postgres(_) => DbBackend::Postgres,
    };
    Ok(sea_orm::Database::connect_proxy(backend, Arc::new(Box::new(Proxy(store.clone())))).await?)
}

/// Returns the row with this id.
pub(super) async fn row(connection: &DatabaseConnection, id: i32) -> Result<Row, DatabaseError> {
    let model =
        entity::Entity::find_by_id(id).one(connection).await?.ok_or(DatabaseError::NoRow(id))?;
    Ok(Row { id: model.id, random_number: model.random_number })
}

/// Passes the ORM's statements to the store.
#[derive(Debug)]
struct Proxy(Store);

impl Proxy {
    async fn all(
        &self,
        statement: Statement,
    ) -> Result<Vec<BTreeMap<String, Value>>, DatabaseError> {
        let values = statement.values.unwrap_or_else(|| Values(Vec::new()));
        match &self.0 {
            Store::Sqlite(pool) => pool.all(statement.sql, values).await,
            Store::Postgres(pool) => pool.all(&statement.sql, values).await,
        }
    }
}

#[async_trait]
impl ProxyDatabaseTrait for Proxy {
    async fn query(&self, statement: Statement) -> Result<Vec<ProxyRow>, DbErr> {
        let rows = self.all(statement).await.map_err(|error| DbErr::Custom(error.to_string()))?;
        Ok(rows.into_iter().map(ProxyRow::new).collect())
    }

    async fn execute(&self, statement: Statement) -> Result<ProxyExecResult, DbErr> {
        Err(DbErr::Custom(format!("this service only reads; not executed: {}", statement.sql)))
    }
}
