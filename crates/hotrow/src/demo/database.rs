//! The demonstration's database file. It plays the role of the user's database; only here does the
//! binary use SQLite directly.

use std::path::Path;

use rusqlite::{Connection, params};

use super::error::DemoError;
use super::products::Product;

const SCHEMA: &str = "CREATE TABLE products (
    id INTEGER PRIMARY KEY,
    sku TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    category TEXT NOT NULL,
    brand TEXT NOT NULL,
    price_cents INTEGER NOT NULL,
    currency TEXT NOT NULL,
    stock INTEGER NOT NULL,
    rating REAL NOT NULL,
    updated_at TEXT NOT NULL,
    description TEXT NOT NULL
)";
const INSERT: &str = "INSERT INTO products VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
/// Products between two reports of progress.
const CHUNK: u32 = 2_000;

/// Writes `count` products into a new file in WAL mode. Calls `progress` with the number written so
/// far; it returns whether to continue.
///
/// # Errors
/// Returns the error of SQLite, or an interruption if `progress` returned `false`.
pub(super) fn create(
    file: &Path,
    count: u32,
    progress: &mut dyn FnMut(u32) -> bool,
) -> Result<(), DemoError> {
    let mut db = Connection::open(file)?;
    // No other process reads the file yet, and it is worthless after a crash: no journal, no sync.
    db.pragma_update(None, "journal_mode", "OFF")?;
    db.pragma_update(None, "synchronous", "OFF")?;
    db.execute_batch(SCHEMA)?;
    let transaction = db.transaction()?;
    {
        let mut insert = transaction.prepare(INSERT)?;
        for id in 1..=count {
            let p = Product::generate(id);
            insert.execute(params![
                p.id,
                p.sku,
                p.name,
                p.category,
                p.brand,
                p.price_cents,
                p.currency,
                p.stock,
                p.rating,
                p.updated_at,
                p.description
            ])?;
            if id.is_multiple_of(CHUNK) && !progress(id) {
                return Err(DemoError::Interrupted);
            }
        }
    }
    transaction.commit()?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_what_was_generated() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("p.db");
        let mut reports = Vec::new();
        create(&file, 5_000, &mut |n| {
            reports.push(n);
            true
        })
        .expect("created");
        assert_eq!(reports, [2_000, 4_000]);
        let db = Connection::open(&file).expect("opens");
        let one = |sql: &str| db.query_row(sql, [], |row| row.get::<_, String>(0)).expect(sql);
        assert_eq!(one("PRAGMA journal_mode"), "wal");
        assert_eq!(
            one("SELECT count(*) || '/' || min(id) || '/' || max(id) FROM products"),
            "5000/1/5000"
        );
        assert_eq!(one("SELECT name FROM products WHERE id = 4711"), Product::generate(4711).name);
        assert_eq!(one("PRAGMA integrity_check"), "ok");
    }

    #[test]
    fn generating_can_be_interrupted() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let stopped = create(&folder.path().join("p.db"), 100_000, &mut |n| n < 4_000);
        assert!(matches!(stopped, Err(DemoError::Interrupted)));
    }
}
