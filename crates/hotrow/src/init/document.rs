//! The configuration file that `hotrow init` writes: a pure function of what was found.

use std::fmt::Write as _;

use hotrow_source::discovery::{Discovered, DiscoveredTable, ListedTable};
use hotrow_source::preflight::Finding;

use super::choice::looks_secret;
use super::toml_text::{comment, comment_lines, list, quoted, string_or_list};

/// Bytes of one entry of the cache beyond its record, rounded up (docs/benchmarks.md).
const ENTRY_BYTES: u64 = 128;
const MIB: u64 = 1 << 20;

/// What the file says.
pub(super) struct Document<'a> {
    pub(super) found: &'a Discovered,
    /// Value of `source.url` as TOML.
    pub(super) url: String,
    /// Variable that the URL refers to.
    pub(super) variable: Option<&'a str>,
    /// The database is an SQLite file.
    pub(super) is_sqlite: bool,
    /// Most tables that were listed.
    pub(super) tables_max: usize,
}

impl Document<'_> {
    /// Returns the text of the file.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let (served, refused): (Vec<&DiscoveredTable>, Vec<&DiscoveredTable>) =
            self.found.tables.iter().partition(|table| table.findings.is_empty());
        self.head(&mut out, served.len());
        self.source(&mut out);
        capacity(&mut out, &served);
        for table in served {
            out.push('\n');
            collection(&mut out, table);
        }
        if !refused.is_empty() {
            out.push('\n');
            comment(
                &mut out,
                "Not served as they are, with the reasons and what would change that:",
            );
        }
        for table in refused {
            out.push('\n');
            refusal(&mut out, table);
        }
        out
    }

    fn head(&self, out: &mut String, served: usize) {
        let of = self.found.tables.len();
        let version = env!("CARGO_PKG_VERSION");
        comment(out, &format!("Written by hotrow init {version} from {}.", self.found.database));
        let others = if served < of { "; the others are comments below" } else { "" };
        comment(out, &format!("{served} of {of} tables can be served{others}."));
        if self.found.is_cut {
            let max = grouped(self.tables_max as u64);
            comment(
                out,
                &format!(
                    "The database has more tables: only the first {max} are here. Name others with \
                     --schema or --tables."
                ),
            );
        }
        let set = self.variable.map_or_else(String::new, |name| format!("{name}=... "));
        comment(out, "Every setting is in docs/reference/configuration.md. Next:");
        comment_lines(
            out,
            "   ",
            &format!(
                "{set}hotrow check --config hotrow.toml\n{set}hotrow serve --config hotrow.toml"
            ),
        );
        if !self.found.findings.is_empty() {
            out.push_str("#\n");
            comment(out, "Before hotrow serve can start, the database needs changes:");
            findings(out, &self.found.findings);
        }
    }

    fn source(&self, out: &mut String) {
        out.push_str("\n[source]\n");
        if let Some(name) = self.variable {
            comment(out, &format!("The connection string is in the environment variable {name}."));
        }
        // Writing to a string does not fail.
        let _ = writeln!(out, "url = {}", self.url);
        if self.is_sqlite {
            comment(
                out,
                "By default any write to the file makes every record stale. With a change log \
                 only the changed records are read again; it adds two tables and triggers to the \
                 file, which must be in WAL mode (docs/sqlite.md).",
            );
            comment_lines(out, " ", "watch = \"triggers\"");
        }
    }
}

/// Returns the tables of these collections.
pub(super) fn collections(served: &[&DiscoveredTable]) -> String {
    let mut out = String::new();
    served.iter().for_each(|table| settings(&mut out, table, ""));
    out
}

/// Writes the section of the cache: a capacity that holds every record, with its arithmetic.
fn capacity(out: &mut String, served: &[&DiscoveredTable]) {
    let known: Vec<(u64, u64)> =
        served.iter().filter_map(|table| table.listed.rows.zip(table.listed.bytes)).collect();
    out.push_str("\n[cache]\n");
    let worth = "The default is 256MiB; a running service predicts what less or more is worth \
                 (`hotrow advise`).";
    if known.is_empty() || known.len() < served.len() {
        let unknown = served.len() - known.len();
        comment(out, &format!("The sizes of {unknown} of the tables are not known. {worth}"));
        comment_lines(out, " ", "capacity = \"256MiB\"");
        return;
    }
    let rows = known.iter().fold(0_u64, |sum, (rows, _)| sum.saturating_add(*rows));
    let bytes = known.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let all = all_records(rows, bytes);
    comment(
        out,
        &format!(
            "Every record at once: {} in the database, half as much again as JSON, and \
             {ENTRY_BYTES} bytes for each of about {} rows make {}. A smaller capacity is usually \
             enough, because few records are read often. {worth}",
            size(bytes),
            grouped(rows),
            size(all),
        ),
    );
    comment_lines(out, " ", &format!("capacity = \"{}MiB\"", all.div_ceil(MIB).max(1)));
}

/// Returns the estimated bytes of all records in the cache.
fn all_records(rows: u64, bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 2).saturating_add(rows.saturating_mul(ENTRY_BYTES))
}

fn collection(out: &mut String, table: &DiscoveredTable) {
    comment(out, &summary(&table.listed, &table.config.key));
    if table.config.name != table.listed.name {
        comment(
            out,
            &format!(
                "Its own name cannot be used in a URL, or another collection has it, so it is {}.",
                table.config.name
            ),
        );
    }
    settings(out, table, "");
}

/// Writes the settings of a collection, each line behind `prefix`.
fn settings(out: &mut String, table: &DiscoveredTable, prefix: &str) {
    let config = &table.config;
    let mut lines = vec![format!("[collections.{}]", config.name)];
    if config.table != config.name {
        lines.push(format!("table = {}", quoted(&config.table)));
    }
    lines.push(format!("key = {}", string_or_list(&config.key)));
    for line in lines {
        out.push_str(prefix);
        out.push_str(&line);
        out.push('\n');
    }
    if config.exclude.is_empty() {
        return;
    }
    let (secret, unreadable): (Vec<&String>, Vec<&String>) =
        config.exclude.iter().partition(|name| looks_secret(name));
    if !secret.is_empty() {
        comment(
            out,
            "Columns whose names look secret. Remove a name to serve its column to every client.",
        );
    }
    if !unreadable.is_empty() {
        let names: Vec<&str> = unreadable.iter().map(|name| name.as_str()).collect();
        comment(out, &format!("This account may not read {}.", names.join(", ")));
    }
    out.push_str(prefix);
    out.push_str("exclude = ");
    out.push_str(&list(&config.exclude));
    out.push('\n');
}

fn refusal(out: &mut String, table: &DiscoveredTable) {
    let config = &table.config;
    comment(out, &summary(&table.listed, &config.key));
    if table.listed.keys.is_empty() && table.listed.kind.ends_with("table") {
        let guess = config.key.join(", ");
        comment(out, &format!("No columns are known to be unique there; {guess} is only a guess."));
    }
    findings(out, &table.findings);
    settings(out, table, "# ");
}

fn findings(out: &mut String, findings: &[Finding]) {
    for finding in findings {
        comment(out, &format!("- {}", finding.problem));
        comment_lines(out, "     ", &finding.remedy);
    }
}

/// Describes a table: `public.orders: table, about 1,200 rows, 3 MiB; key id (bigint)`.
fn summary(table: &ListedTable, key: &[String]) -> String {
    let name = if table.schema.is_empty() {
        table.name.clone()
    } else {
        format!("{}.{}", table.schema, table.name)
    };
    let mut text = format!("{name}: {}", table.kind);
    if let Some(rows) = table.rows {
        let noun = if rows == 1 { "row" } else { "rows" };
        let _ = write!(text, ", about {} {noun}", grouped(rows));
    }
    if let Some(bytes) = table.bytes {
        let _ = write!(text, ", {}", size(bytes));
    }
    let typed = key.iter().map(|name| {
        let column = table.columns.iter().find(|column| column.name == *name);
        let sql_type = column.map_or("", |column| column.sql_type.as_str());
        if sql_type.is_empty() { name.clone() } else { format!("{name} ({sql_type})") }
    });
    let typed: Vec<String> = typed.collect();
    if !table.keys.is_empty() {
        let _ = write!(text, "; key {}", typed.join(", "));
    }
    text
}

/// Formats bytes with one unit.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..MIB => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{} MiB", grouped(bytes.div_ceil(MIB))),
    }
}

/// Formats a number with a comma between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests;
