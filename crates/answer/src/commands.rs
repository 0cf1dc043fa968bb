//! The commands that are served, as `COMMAND` describes them.
//!
//! Reference `redis`: Commands
//!
//! A command may also be a line, as in `telnet`.
//!
//! - `GET key`: the record, or null
//! - `MGET key …`: records and nulls in the order of the keys, of any collections, at most
//!   `limits.max_batch`. The cold keys of each collection are one query
//! - `EXISTS key …`: number of keys that have a record; repeated keys count again
//! - `HOTROW.GET key MINPOS position`: the record, as with [`Hotrow-Min-Position`](consistency.md);
//!   needs `allow_min_position`, or with `now` `strict`
//! - `HOTROW.MGET key … SNAPSHOT`: as `MGET`, of [one point of the log](http.md#snapshot-batches)
//! - `AUTH credential`, `AUTH default credential`: `OK`; an API key or a token (JWT)
//! - `HELLO [2 or 3] [AUTH default credential] [SETNAME name]`: chooses the version of replies
//! - `PING [text]`, `ECHO text`, `SELECT 0`, `RESET`, `QUIT`: as in Redis
//! - `TTL key`, `PTTL key`: time for which memory may keep the record, in seconds and milliseconds;
//!   -2: no record; -1: no limit
//! - `CLIENT ID`, `SETNAME`, `GETNAME`, `SETINFO`, `INFO`, `NO-EVICT`, `NO-TOUCH`: as in Redis, but
//!   ids are random; the last two have no effect
//! - `CLIENT TRACKING`, `CACHING`, `GETREDIR`, `TRACKINGINFO`: [client-side
//!   caching](redis.md#client-side-caching)
//! - `SUBSCRIBE`, `UNSUBSCRIBE`: only of `__redis__:invalidate`
//! - `MULTI`, `EXEC`, `DISCARD`: the commands run one after the other at `EXEC`, each record read
//!   by itself: no isolation
//! - `COMMAND`, `COMMAND COUNT`, `DOCS`, `INFO`, `LIST`: these commands
//! - `INFO`: versions and role, the same in every section

use hotrow_resp::arguments::Arguments;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the command of its name; `SPECS` describes it")]
pub enum Command {
    Auth,
    Client,
    Describe,
    Discard,
    Echo,
    Exec,
    Exists,
    Get,
    Hello,
    HotrowGet,
    HotrowMget,
    Info,
    Mget,
    Multi,
    Ping,
    Pttl,
    Quit,
    Reset,
    Select,
    Subscribe,
    Ttl,
    Unsubscribe,
}

/// Properties of a command.
#[derive(Debug)]
pub struct Spec {
    /// The command.
    pub command: Command,
    /// In small letters.
    pub name: &'static str,
    /// Number of arguments, the name included; negative: at least so many.
    pub arity: i64,
    /// Flags of `COMMAND`.
    pub flags: &'static [&'static str],
    /// Place of the first key, of the last, and the distance between them; 0: no keys.
    pub keys: [i64; 3],
    /// Group of `COMMAND DOCS`.
    pub group: &'static str,
    /// Summary of `COMMAND DOCS`.
    pub summary: &'static str,
}

const READ: &[&str] = &["readonly", "fast"];
const SETTING: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth"];
const ANY: &[&str] = &["loading", "stale", "fast"];

/// All commands, in the order of [`Command`].
pub const SPECS: [Spec; 22] = [
    spec(Command::Auth, "auth", -2, SETTING, "connection", "Sends an API key or a token."),
    spec(Command::Client, "client", -2, ANY, "connection", "Names and describes the connection."),
    spec(Command::Describe, "command", -1, ANY, "server", "Describes the served commands."),
    spec(Command::Discard, "discard", 1, ANY, "transactions", "Forgets the commands since MULTI."),
    spec(Command::Echo, "echo", 2, ANY, "connection", "Returns its argument."),
    spec(Command::Exec, "exec", 1, ANY, "transactions", "Serves the commands since MULTI."),
    Spec {
        keys: [1, -1, 1],
        ..spec(Command::Exists, "exists", -2, READ, "generic", "Counts the records that exist.")
    },
    Spec {
        keys: [1, 1, 1],
        ..spec(Command::Get, "get", 2, READ, "string", "Returns the record collection:id as JSON.")
    },
    spec(Command::Hello, "hello", -1, SETTING, "connection", "Chooses the version of replies."),
    Spec {
        keys: [1, 1, 1],
        ..spec(
            Command::HotrowGet,
            "hotrow.get",
            4,
            READ,
            "string",
            "Returns a record that is at least as new as a position.",
        )
    },
    Spec {
        keys: [1, -2, 1],
        ..spec(
            Command::HotrowMget,
            "hotrow.mget",
            -3,
            READ,
            "string",
            "Returns several records as of one point of the log.",
        )
    },
    spec(Command::Info, "info", -1, ANY, "server", "Returns texts about the server."),
    Spec {
        keys: [1, -1, 1],
        ..spec(Command::Mget, "mget", -2, READ, "string", "Returns several records.")
    },
    spec(Command::Multi, "multi", 1, ANY, "transactions", "Keeps the next commands for EXEC."),
    spec(Command::Ping, "ping", -1, ANY, "connection", "Returns PONG, or its argument."),
    Spec {
        keys: [1, 1, 1],
        ..spec(Command::Pttl, "pttl", 2, READ, "generic", "Returns the TTL of a record in ms.")
    },
    spec(Command::Quit, "quit", -1, SETTING, "connection", "Ends the connection."),
    spec(Command::Reset, "reset", 1, SETTING, "connection", "Makes the connection a new one."),
    spec(Command::Select, "select", 2, ANY, "connection", "Chooses database 0, the only one."),
    spec(Command::Subscribe, "subscribe", -2, ANY, "pubsub", "Receives invalidations."),
    Spec {
        keys: [1, 1, 1],
        ..spec(Command::Ttl, "ttl", 2, READ, "generic", "Returns the TTL of a record in seconds.")
    },
    spec(Command::Unsubscribe, "unsubscribe", -1, ANY, "pubsub", "Ends receiving them."),
];

const fn spec(
    command: Command,
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
) -> Spec {
    Spec { command, name, arity, flags, keys: [0; 3], group, summary }
}

/// Names of the commands in the metrics, in the order of [`Command`]; then all that are not served.
pub(crate) const LABELS: [&str; SPECS.len() + 1] = {
    let mut labels = ["unknown"; SPECS.len() + 1];
    let mut at = 0;
    while at < SPECS.len() {
        labels[at] = SPECS[at].name;
        at += 1;
    }
    labels
};

/// Whether a command reads records, by the index of its name in the metrics.
pub(crate) const IS_READ: [bool; LABELS.len()] = {
    let mut is_read = [false; LABELS.len()];
    let mut at = 0;
    while at < SPECS.len() {
        is_read[at] = SPECS[at].is_read();
        at += 1;
    }
    is_read
};

/// Index of commands that are not served.
pub const UNKNOWN: usize = SPECS.len();

/// Returns the command of this name, in any case of letters.
#[inline]
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    // Nearly all commands: one comparison.
    if name.eq_ignore_ascii_case(b"get") {
        return Some(&SPECS[Command::Get as usize]);
    }
    SPECS.iter().find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes()))
}

impl Spec {
    /// Returns whether a command may have this number of arguments, the name included.
    pub fn takes(&self, arguments: usize) -> bool {
        let least = usize::try_from(self.arity.unsigned_abs()).unwrap_or(usize::MAX);
        if self.arity < 0 { arguments >= least } else { arguments == least }
    }

    /// Returns whether it reads records.
    pub(crate) const fn is_read(&self) -> bool {
        self.keys[0] > 0
    }

    /// Returns the number of keys of a command that names several.
    pub fn key_count(&self, arguments: Arguments<'_>) -> usize {
        let options = if self.keys[1] == -2 { 2 } else { 1 };
        arguments.len().saturating_sub(options)
    }

    /// Returns the keys that a command names; `None`: it names none.
    pub fn keys_of<'a>(&self, arguments: Arguments<'a>) -> Option<impl Iterator<Item = &'a [u8]>> {
        let keys = arguments.from(1);
        match self.keys {
            [0, ..] => None,
            [_, -1, _] => Some(keys.take(usize::MAX)),
            // The last argument is an option.
            [_, -2, _] => Some(keys.take(self.key_count(arguments))),
            _ => Some(keys.take(1)),
        }
    }

    /// Returns whether it is served between `MULTI` and `EXEC` too.
    pub fn ends_queue(&self) -> bool {
        matches!(self.command, Command::Exec | Command::Discard | Command::Multi)
    }

    /// Returns whether what `CLIENT CACHING` has said holds for a later command.
    pub fn precedes_cached(&self) -> bool {
        matches!(self.command, Command::Client | Command::Multi)
    }

    /// Returns whether it may be sent before a credential.
    #[inline]
    pub fn is_open(&self) -> bool {
        matches!(self.command, Command::Auth | Command::Hello | Command::Quit | Command::Reset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name() {
        for (at, spec) in SPECS.iter().enumerate() {
            assert_eq!(spec.command as usize, at, "{}", spec.name);
            assert_eq!(LABELS[at], spec.name);
            let found = find(spec.name.to_ascii_uppercase().as_bytes()).map(|found| found.command);
            assert_eq!(found, Some(spec.command));
            assert_eq!(spec.is_open(), spec.flags.contains(&"no_auth"), "{}", spec.name);
        }
        assert!(find(b"set").is_none() && find(b"").is_none());
        assert_eq!(LABELS[UNKNOWN], "unknown");
    }

    #[test]
    fn the_number_of_arguments_is_exact_or_a_least_one() {
        let get = find(b"GET").unwrap();
        assert!(!get.takes(1) && get.takes(2) && !get.takes(3));
        let mget = find(b"mget").unwrap();
        assert!(!mget.takes(1) && mget.takes(2) && mget.takes(1_000));
    }
}
