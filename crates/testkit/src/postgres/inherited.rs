//! Settings of a server, a database or a role on which answers would depend if a session inherited
//! them: output and input of values, the plan, the snapshot, and Hotrow's own statements.
//!
//! `HOTROW_TEST_GLOBALS=perturbed cargo test …` starts every server with all of them, and the
//! sessions of the tests themselves put theirs back.

use crate::process::is_perturbed;

/// A setting, a value that would change an answer, and the value that tests use.
type Inherited = (&'static str, &'static str, &'static str);

const INHERITED: [Inherited; 16] = [
    ("DateStyle", "SQL, DMY", "ISO,MDY"),
    ("IntervalStyle", "sql_standard", "postgres"),
    ("TimeZone", "Asia/Kathmandu", "Etc/UTC"),
    ("extra_float_digits", "-15", "1"),
    ("bytea_output", "escape", "hex"),
    ("xmlbinary", "hex", "base64"),
    ("standard_conforming_strings", "off", "on"),
    ("array_nulls", "off", "on"),
    ("transform_null_equals", "on", "off"),
    ("quote_all_identifiers", "on", "off"),
    ("row_security", "off", "on"),
    ("enable_indexscan", "off", "on"),
    ("enable_nestloop", "off", "on"),
    ("plan_cache_mode", "force_custom_plan", "auto"),
    ("default_transaction_isolation", "serializable", "read\\ committed"),
    ("default_transaction_deferrable", "on", "off"),
];

/// Returns the settings, each with a value that would change an answer.
pub fn inherited() -> impl Iterator<Item = (&'static str, &'static str)> {
    INHERITED.into_iter().map(|(name, value, _)| (name, value))
}

/// Returns those of a server of this run, if it is such a run.
pub(super) fn of_run<'a>() -> impl Iterator<Item = (&'a str, &'a str)> {
    inherited()
        .filter(|_| is_perturbed())
        .map(|(name, value)| -> (&'a str, &'a str) { (name, value) })
}

/// Returns the options of a session of a test in such a run.
pub(super) fn of_session() -> String {
    let own = INHERITED.into_iter().filter(|_| is_perturbed());
    own.map(|(name, _, value)| format!("-c {name}={value} ")).collect()
}
