//! The configuration file that `hotrow init` writes: a pure function of what was found.

use std::fmt::Write as _;

use hotrow_source::discovery::{Discovered, DiscoveredTable, Engine, ListedColumn, ListedTable};
use hotrow_types::key::KEY_PARTS_MAX;

use super::choice::{looks_secret, valid};
use super::toml_text::{comment, comment_lines, list, quoted, string_or_list};
use crate::config::COLLECTIONS_MAX;

/// Bytes of one entry of the cache beyond its record, rounded up (docs/benchmarks.md).
const ENTRY_BYTES: u64 = 128;
const MIB: u64 = 1 << 20;
/// Most aliases and most embedded tables of one collection.
const OFFERED_MAX: usize = 8;

/// What the file says.
pub(super) struct Document<'a> {
    pub(super) found: &'a Discovered,
    /// Value of `source.url` as TOML.
    pub(super) url: String,
    /// Variable that the URL refers to.
    pub(super) variable: Option<&'a str>,
    /// Statements for an administrator, in one block.
    pub(super) setup: &'a str,
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
            self.collection(&mut out, table);
        }
        let (unfollowed, refused): (Vec<&DiscoveredTable>, Vec<&DiscoveredTable>) =
            refused.into_iter().partition(|table| is_only_unfollowed(table));
        if !refused.is_empty() {
            out.push('\n');
            let text = "Not served as they are, with the reasons and what would change that:";
            comment(&mut out, text);
        }
        for table in refused {
            out.push('\n');
            refusal(&mut out, table);
            settings(&mut out, table, "# ");
        }
        self.unfollowed(&mut out, &unfollowed);
        out
    }

    /// Offers tables whose changes no feed shows, by TTL alone.
    fn unfollowed(&self, out: &mut String, tables: &[&DiscoveredTable]) {
        if tables.is_empty() {
            return;
        }
        let text = "No feed shows changes of these tables, each with the reason. A second source \
                    serves them by TTL alone:";
        out.push('\n');
        comment(out, text);
        let source = format!("[sources.unfollowed]\nurl = {}\nfeed = \"none\"", self.url);
        comment_lines(out, " ", &source);
        for table in tables {
            out.push('\n');
            refusal(out, table);
            settings(out, table, "# ");
            comment_lines(out, " ", "source = \"unfollowed\"\nttl = \"5s\"");
        }
    }

    fn head(&self, out: &mut String, served: usize) {
        let of = self.found.tables.len();
        let version = env!("CARGO_PKG_VERSION");
        comment(out, &format!("Written by hotrow init {version} from {}.", self.found.database));
        let others = if served < of { "; the others are comments below" } else { "" };
        comment(out, &format!("{served} of {of} tables can be served{others}."));
        if self.found.is_cut {
            let max = grouped(COLLECTIONS_MAX as u64);
            let text = format!(
                "The database has more tables: only the first {max} are here. Name others with \
                 --schema or --tables."
            );
            comment(out, &text);
        }
        let set = self.variable.map_or_else(String::new, |name| format!("{name}=... "));
        comment(out, "Every setting is in docs/reference/configuration.md. Next:");
        let line = |command| format!("{set}hotrow {command} --config hotrow.toml");
        comment_lines(out, "   ", &["check", "serve"].map(line).join("\n"));
        if !self.found.findings.is_empty() {
            out.push_str("#\n");
            comment(out, "Before hotrow serve can start, the database needs changes:");
            for finding in &self.found.findings {
                comment(out, &format!("- {}", finding.problem));
            }
            comment(out, "Run as an administrator (with --output it is on standard output):");
            comment_lines(out, "     ", self.setup);
        }
    }

    fn source(&self, out: &mut String) {
        out.push_str("\n[source]\n");
        if let Some(name) = self.variable {
            comment(out, &format!("The connection string is in the environment variable {name}."));
        }
        // Writing to a string does not fail.
        let _ = writeln!(out, "url = {}", self.url);
        match (self.found.engine, self.found.lacks_positions) {
            (Engine::Sqlite, None) => {
                let text = "A change log: only changed records are read again. It adds two tables \
                            and triggers to the file (docs/sqlite.md). Without it, \"none\" and no \
                            allow_min_position below, any write makes every record stale.";
                comment(out, text);
                out.push_str("watch = \"triggers\"\n");
            }
            (_, Some(why)) => {
                comment(out, &format!("No change log, because {why}: any write makes all stale."));
                out.push_str("watch = \"none\"\n");
            }
            (_, None) if !self.found.findings.is_empty() => {
                let text = "Without the changes above: no feed, answers as old as cache.ttl, and \
                            no allow_min_position.";
                comment(out, text);
                comment_lines(out, " ", "feed = \"none\" # with ttl = \"5s\" in [cache]");
            }
            (_, None) => {}
        }
    }

    /// Writes a collection, and behind it what else the catalogue offers, as comments.
    fn collection(&self, out: &mut String, table: &DiscoveredTable) {
        let DiscoveredTable { listed, config, .. } = table;
        comment(out, &summary(listed, &config.key));
        if config.name != listed.name {
            let text = format!(
                "Its own name cannot be used in a URL, or another collection has it, so it is {}.",
                config.name
            );
            comment(out, &text);
        }
        if let Some(sampled) = listed.sampled {
            let seen = |column: &ListedColumn| format!("{} ({})", column.name, column.sql_type);
            let seen = listed.columns.iter().map(seen).collect::<Vec<_>>().join(", ");
            let seen = if seen.is_empty() { "nothing" } else { &seen };
            let what = format!("Seen in a sample of {sampled} documents, others may differ");
            comment(out, &format!("{what}: {seen}."));
        }
        settings(out, table, "");
        if self.found.lacks_positions.is_none() {
            out.push_str("allow_min_position = true\n");
        }
        self.aliases(out, table);
        self.children(out, table);
    }

    /// Offers the other unique columns.
    fn aliases(&self, out: &mut String, table: &DiscoveredTable) {
        let DiscoveredTable { listed, config, .. } = table;
        let is_id = |name: &String| {
            let column = listed.columns.iter().find(|column| column.name == *name);
            column.is_some_and(|column| has_id_form(&column.sql_type, self.found.engine))
        };
        let offered = |key: &&Vec<String>| {
            **key != config.key
                && key.len() <= KEY_PARTS_MAX
                && key.iter().all(|name| is_id(name) && !config.exclude.contains(name))
        };
        let keys: Vec<&Vec<String>> =
            listed.keys.iter().filter(offered).take(OFFERED_MAX).collect();
        let is_key_sound = self.found.engine == Engine::Mongodb || config.key.iter().all(is_id);
        if keys.is_empty() || !is_key_sound {
            return;
        }
        comment(out, "Also by other unique columns (docs/aliases.md):");
        for key in keys {
            let name = valid(&key.join("_"));
            let lines = format!(
                "[collections.{}.by.{name}]\ncolumns = {}",
                config.name,
                string_or_list(key)
            );
            comment_lines(out, " ", &lines);
        }
    }

    /// Offers the rows that refer to its key, without their secrets.
    fn children(&self, out: &mut String, table: &DiscoveredTable) {
        let DiscoveredTable { listed, config, .. } = table;
        let [key] = &config.key[..] else { return };
        let mut names: Vec<String> = Vec::new();
        for child in listed.children.iter().filter(|child| child.to == *key).take(OFFERED_MAX) {
            let of = self.found.tables.iter().find(|other| other.config.table == child.table);
            let Some(of) = of.filter(|of| of.findings.is_empty()) else { continue };
            let is_taken = |name: &String| {
                let mut columns = listed.columns.iter();
                names.contains(name) || columns.any(|own| own.name.eq_ignore_ascii_case(name))
            };
            let name = [valid(&child.name), valid(&format!("{}_{}", child.name, child.on))];
            let Some(name) = name.into_iter().find(|name| !is_taken(name)) else { continue };
            if names.is_empty() {
                comment(out, "With the rows that refer to it (docs/embedding.md):");
            }
            let mut lines = format!(
                "[collections.{}.embed.{name}]\ntable = {}\non = {}",
                config.name,
                quoted(&child.table),
                quoted(&child.on)
            );
            if !of.config.exclude.is_empty() {
                let all = of.listed.columns.iter().map(|column| column.name.clone());
                let shown: Vec<_> = all.filter(|name| !of.config.exclude.contains(name)).collect();
                let _ = write!(lines, "\ncolumns = {}", list(&shown));
            }
            comment_lines(out, " ", &lines);
            names.push(name);
        }
    }
}

/// Returns whether a table can be served by TTL alone: by a key that the catalogue has, and without
/// the checks of the feed.
fn is_only_unfollowed(table: &DiscoveredTable) -> bool {
    !table.listed.keys.is_empty() && table.findings.iter().all(|finding| finding.is_of_feed)
}

/// Returns whether values of a declared type have the form of ids in a record, as an alias needs.
fn has_id_form(sql_type: &str, engine: Engine) -> bool {
    if engine == Engine::Mongodb {
        let seen = sql_type.split(',').next().unwrap_or_default();
        return ["string", "int32", "int64", "objectid"].contains(&seen);
    }
    let word = sql_type.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    let word = word.to_ascii_lowercase();
    let is_integer = word.starts_with("int") && word != "interval" || word.ends_with("int");
    (is_integer && word != "point")
        || ["text", "character", "varchar", "char", "citext"].contains(&word.as_str())
        || (word == "uuid" && engine == Engine::Postgres)
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
    let entries = rows.saturating_mul(ENTRY_BYTES);
    let all = bytes.saturating_add(bytes / 2).saturating_add(entries);
    let text = format!(
        "Every record at once: {} in the database, half as much again as JSON, and {ENTRY_BYTES} \
         bytes for each of about {} rows make {}. A smaller capacity is usually enough, because few \
         records are read often. {worth}",
        size(bytes),
        grouped(rows),
        size(all),
    );
    comment(out, &text);
    comment_lines(out, " ", &format!("capacity = \"{}MiB\"", all.div_ceil(MIB).max(1)));
}

/// Writes the settings of a collection, each line behind `prefix`.
fn settings(out: &mut String, table: &DiscoveredTable, prefix: &str) {
    let config = &table.config;
    let mut lines = vec![format!("[collections.{}]", config.name)];
    if config.table != config.name {
        lines.push(format!("table = {}", quoted(&config.table)));
    }
    // One that was only tried is no proposal.
    if prefix.is_empty() || !table.listed.keys.is_empty() {
        lines.push(format!("key = {}", string_or_list(&config.key)));
    }
    if !config.key_types.is_empty() {
        let types: Vec<String> = config.key_types.iter().map(|ty| ty.word().to_owned()).collect();
        lines.push(format!("key_type = {}", string_or_list(&types)));
    }
    out.extend(lines.iter().flat_map(|line| [prefix, line, "\n"]));
    if config.exclude.is_empty() {
        return;
    }
    let (secret, unreadable): (Vec<&String>, Vec<&String>) =
        config.exclude.iter().partition(|name| looks_secret(name));
    if !secret.is_empty() {
        let rule = "Remove a name to serve its column to every client.";
        comment(out, &format!("Columns whose names look secret. {rule}"));
    }
    if !unreadable.is_empty() {
        let names: Vec<&str> = unreadable.iter().map(|name| name.as_str()).collect();
        comment(out, &format!("This account may not read {}.", names.join(", ")));
    }
    let _ = writeln!(out, "{prefix}exclude = {}", list(&config.exclude));
}

fn refusal(out: &mut String, table: &DiscoveredTable) {
    let config = &table.config;
    comment(out, &summary(&table.listed, &config.key));
    for finding in &table.findings {
        comment(out, &format!("- {}", finding.problem));
        comment_lines(out, "     ", &finding.remedy);
    }
}

/// Describes a table: `public.orders: table, about 1,200 rows, 3 MiB; key id (bigint)`.
fn summary(table: &ListedTable, key: &[String]) -> String {
    let dot = if table.schema.is_empty() { "" } else { "." };
    let mut text = format!("{}{dot}{}: {}", table.schema, table.name, table.kind);
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

/// Formats a number with commas between thousands.
fn grouped(number: u64) -> String {
    hotrow_measure::figures::grouped(number as f64)
}

#[cfg(test)]
mod tests;
