//! Settings of the server that sessions inherit, and that must not change an answer.
//!
//! `HOTROW_TEST_GLOBALS=perturbed cargo test …` starts every server with all of them, and the
//! sessions of the tests themselves put theirs back.

use std::fmt::Write as _;

use super::Flavor;
use crate::process::is_perturbed;

/// Servers that have a variable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Both,
    Only(Flavor),
}

/// A variable, a value that would change an answer or the catalogue, and the value that tests use.
type Global = (On, &'static str, &'static str, &'static str);

const NUMBERS: &str = "18446744073709551615";
const GLOBALS: [Global; 20] = [
    (On::Both, "sql_select_limit", "1", NUMBERS),
    (On::Both, "init_connect", "'START TRANSACTION'", ""),
    (On::Both, "autocommit", "OFF", "ON"),
    (On::Both, "completion_type", "'RELEASE'", "'NO_CHAIN'"),
    (
        On::Both,
        "sql_mode",
        "'ANSI,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES'",
        "'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'",
    ),
    (On::Both, "time_zone", "'-09:00'", "'+05:30'"),
    (On::Both, "max_join_size", "1", NUMBERS),
    (On::Both, "max_sort_length", "64", "1024"),
    (On::Both, "sql_quote_show_create", "OFF", "ON"),
    (On::Both, "sql_auto_is_null", "ON", "OFF"),
    (On::Both, "character_set_client", "latin1", "utf8mb4"),
    (On::Both, "character_set_connection", "latin1", "utf8mb4"),
    (On::Both, "character_set_results", "latin1", "utf8mb4"),
    (On::Both, "collation_connection", "utf8mb4_bin", "utf8mb4_general_ci"),
    (On::Both, "lc_time_names", "de_DE", "en_US"),
    (On::Both, "lc_messages", "de_DE", "en_US"),
    (On::Only(Flavor::MariaDb), "tx_isolation", "'READ-UNCOMMITTED'", "'REPEATABLE-READ'"),
    (On::Only(Flavor::MySql), "transaction_isolation", "'READ-UNCOMMITTED'", "'REPEATABLE-READ'"),
    (On::Only(Flavor::MariaDb), "old_mode", "'ZERO_DATE_TIME_CAST'", "'UTF8_IS_UTF8MB3'"),
    (On::Only(Flavor::MySql), "show_gipk_in_create_table_and_information_schema", "OFF", "ON"),
];

fn of(flavor: Flavor) -> impl Iterator<Item = Global> {
    GLOBALS.into_iter().filter(move |(on, ..)| *on == On::Both || *on == On::Only(flavor))
}

/// Returns the variables of a server, each with a value that would change an answer.
pub fn globals(flavor: Flavor) -> impl Iterator<Item = (&'static str, &'static str)> {
    of(flavor).map(|(_, name, value, _)| (name, value))
}

/// Returns the statements that perturb a server of this run, if it is such a run.
pub(super) fn of_run(flavor: Flavor) -> String {
    let mut sql = String::new();
    for (name, value) in globals(flavor).filter(|_| is_perturbed()) {
        // Writing to a string cannot fail.
        _ = writeln!(sql, "SET GLOBAL {name} = {value};");
    }
    sql
}

/// Returns the statements that begin a session of a test in such a run.
pub(super) fn of_session(flavor: Flavor) -> String {
    let mut sql = String::new();
    for (_, name, _, value) in of(flavor).filter(|(.., value)| is_perturbed() && !value.is_empty())
    {
        _ = write!(sql, "SET SESSION {name} = {value}; ");
    }
    sql
}
