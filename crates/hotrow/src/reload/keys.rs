//! Which keys of the configuration change while the service runs, and why the others do not.

/// Listening sockets and what is set up with them.
const LISTEN: &str = "the listening sockets and their threads are set up at the start";
const SOURCE: &str = "the connections to the database and the feed are set up at the start";
const WARM: &str = "the warm start is set up at the start";
const FORMAT: &str = "the log is set up at the start";
const TRACES: &str = "the export of traces is set up at the start";
const WATCH: &str = "its samples are taken from the start";
const MEMORY: &str = "the memory of the process is divided at the start";
const TIMING: &str = "the feed's probes are timed by it";
const LIMITER: &str = "the queues and the concurrency limit are set up at the start";
const CHECK: &str = "the thread of the consistency check is set up at the start";
const CLIENTS: &str = "the connections of a client are counted from the start";
const FOLLOW: &str = "what followers share with the feed is set up at the start";
const PURGE: &str = "purges are set up at the start";
const SHAPE: &str = "the feed and the queries follow the table as it was at the start";
pub(super) const TOKEN_KEYS: &str =
    "the thread that reads the keys of tokens is set up at the start";
pub(super) const ADDED: &str = "the feed covers the collections of the start";

/// Settings of `[cache]` that change.
const CACHE: [&str; 8] = [
    "capacity",
    "error_ttl",
    "negative_ttl",
    "stale_if_error",
    "stale_while_revalidate",
    "ttl",
    "ttl_jitter",
    "when_stale",
];
/// Settings of a collection that are about its table.
const TABLE: [&str; 10] = [
    "by", "changes", "columns", "embed", "exclude", "key", "key_type", "source", "table", "tenant",
];
/// Settings of `[access.jwt]` that are about where keys come from.
pub(super) const KEY_SOURCE: [&str; 5] =
    ["jwks_ca", "jwks_file", "jwks_max_age", "jwks_url", "refresh"];

/// Returns why a key does not change while the service runs; `None`: it does. `path`: from the
/// outermost table.
pub(super) fn why_left(path: &[&str]) -> Option<&'static str> {
    match path {
        ["admin", "unix" | "unix_mode" | "tls", ..] => Some(LISTEN),
        ["admin", "hot_keys"] | ["cache", "miss_ratio_curve"] => Some(WATCH),
        ["redis", "tracking_bytes"] => Some(MEMORY),
        ["listen", "unknown_parameters"] => None,
        ["admin" | "cors" | "redis" | "reload", ..] | ["log", "level"] => None,
        ["limits", "rate" | "breaker", ..] | ["limits", "concurrency", "deadline_header"] => None,
        ["limits", "shed", "memory_limit"] => Some(MEMORY),
        ["limits", "shed", _] => None,
        ["limits", "concurrency", ..] => Some(LIMITER),
        ["limits", limit] => why_limit_left(limit),
        ["access", "jwt", key] if KEY_SOURCE.contains(key) => Some(TOKEN_KEYS),
        ["access", ..] => None,
        ["cache", key] if CACHE.contains(key) => None,
        ["cache", "max_staleness"] => Some(TIMING),
        ["cache", "isolate_scans" | "prefetch_on_change"] => Some(LIMITER),
        ["cache", ..] => Some(MEMORY),
        ["collections", _, key, ..] if TABLE.contains(key) => Some(SHAPE),
        ["collections", _, "surrogate_keys"] | ["purge", ..] => Some(PURGE),
        ["collections", ..] => None,
        ["follow", ..] => Some(FOLLOW),
        ["warm", ..] => Some(WARM),
        ["log" | "access_log", ..] => Some(FORMAT),
        ["trace", ..] => Some(TRACES),
        ["source" | "sources" | "hub", ..] => Some(SOURCE),
        // `[listen]`, and whatever is added to the configuration without a line here.
        _ => Some(LISTEN),
    }
}

fn why_limit_left(limit: &str) -> Option<&'static str> {
    match limit {
        "answer_bytes" | "answers_bytes_total" | "bodies_bytes_total" | "rows_bytes_total" => {
            Some(MEMORY)
        }
        "checks_per_s" => Some(CHECK),
        "connections_per_client" => Some(CLIENTS),
        _ => None,
    }
}

/// Settings of a collection's table: what is kept of one that leaves the configuration.
pub(super) fn is_of_table(key: &str) -> bool {
    TABLE.contains(&key)
}
