//! Statements in the log: their effects on transactions, and the tables that they may have changed.

use super::super::binlog::{Query, Xid};

/// Effect of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// Begins a transaction.
    Begin,
    /// Commits the transaction or rolls it back as a whole. What the log holds of a rolled-back one
    /// did happen, because its tables have no transactions.
    End,
    /// Commits a prepared transaction. None if its name cannot be parsed.
    XaCommit(Option<Xid>),
    /// Rolls a prepared transaction back.
    XaRollback(Option<Xid>),
    /// Sets or removes a savepoint, or ends the statements of an XA transaction.
    Savepoint,
    /// May change the tables that it names and no others.
    Definition {
        /// Kind of the change.
        kind: DefinitionKind,
        /// True if rows follow in the same transaction (CREATE TABLE … SELECT of MySQL).
        has_rows: bool,
    },
    /// Changes privileges and no table: GRANT, REVOKE, or a statement about users or roles.
    Privileges,
    /// May change any table: it can call functions and fire triggers.
    Any,
}

/// Kind of a data definition statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefinitionKind {
    /// TRUNCATE, which keeps the table's definition.
    Truncate,
    /// A change of the schema.
    Schema,
}

/// First words of statements that change only what they name.
const DEFINITIONS: [&str; 11] = [
    "ALTER",
    "ANALYZE",
    "CHECK",
    "CREATE",
    "DROP",
    "FLUSH",
    "INSTALL",
    "OPTIMIZE",
    "RENAME",
    "REPAIR",
    "UNINSTALL",
];

impl Statement {
    pub(super) fn of(text: &[u8]) -> Self {
        let Some(mut rest) = without_comments(text) else { return Self::Any };
        let first = next_word(&mut rest);
        let mut second = next_word(&mut rest);
        if (first.as_str(), second.as_str()) == ("CREATE", "OR") {
            // OR REPLACE, which MariaDB allows before USER and ROLE too.
            let _replace = next_word(&mut rest);
            second = next_word(&mut rest);
        }
        match (first.as_str(), second.as_str()) {
            ("BEGIN", _) | ("START", "TRANSACTION") | ("XA", "START" | "BEGIN") => Self::Begin,
            ("COMMIT", _) => Self::End,
            ("ROLLBACK", "TO" | "WORK")
                if text.to_ascii_uppercase().windows(4).any(|w| w == b" TO ") =>
            {
                Self::Savepoint
            }
            ("ROLLBACK", _) => Self::End,
            ("SAVEPOINT" | "RELEASE", _) | ("XA", "END") => Self::Savepoint,
            ("XA", "COMMIT") => Self::XaCommit(xid(text)),
            ("XA", "ROLLBACK") => Self::XaRollback(xid(text)),
            ("GRANT" | "REVOKE", _) => Self::Privileges,
            ("CREATE" | "ALTER" | "DROP" | "RENAME", "USER" | "ROLE") => Self::Privileges,
            ("SET", "PASSWORD" | "DEFAULT") => Self::Privileges,
            ("TRUNCATE", _) => Self::Definition { kind: DefinitionKind::Truncate, has_rows: false },
            (word, _) if DEFINITIONS.contains(&word) => {
                let has_rows =
                    text.trim_ascii_end().to_ascii_uppercase().ends_with(b"START TRANSACTION");
                Self::Definition { kind: DefinitionKind::Schema, has_rows }
            }
            _ => Self::Any,
        }
    }
}

/// Takes the next word in upper case, without the comments before it. The words of an executable
/// comment count, because the server executed them unless it is older than the comment allows. The
/// word is empty if a quote, an operator or nothing follows.
fn next_word(rest: &mut &[u8]) -> String {
    let mut text = rest.trim_ascii_start();
    while let Some(after) = into_executable_comment(text)
        .or_else(|| text.strip_prefix(b"*/"))
        .or_else(|| after_comment(text))
    {
        text = after.trim_ascii_start();
    }
    let is_in_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let end = text.iter().position(|b| !is_in_word(b)).unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    *rest = after;
    String::from_utf8_lossy(word).to_ascii_uppercase()
}

/// Parses the name of a prepared transaction after `XA COMMIT`.
fn xid(text: &[u8]) -> Option<Xid> {
    let at = text.iter().position(|b| *b == b'\'')?;
    Xid::parse(text.get(at.checked_sub(1)?..)?.trim_ascii_end())
}

/// Returns the text without leading blanks and comments. None if it begins with an executable
/// comment.
fn without_comments(text: &[u8]) -> Option<&[u8]> {
    let mut text = text.trim_ascii_start();
    loop {
        if into_executable_comment(text).is_some() {
            return None;
        }
        match after_comment(text) {
            Some(after) => text = after.trim_ascii_start(),
            None => return Some(text),
        }
    }
}

/// Returns the text from the content of an executable comment on. None if the text does not begin
/// with one.
fn into_executable_comment(text: &[u8]) -> Option<&[u8]> {
    let content = text.strip_prefix(b"/*!").or_else(|| text.strip_prefix(b"/*M!"))?;
    let version = content.iter().take_while(|b| b.is_ascii_digit()).count();
    Some(&content[version..])
}

/// Returns the text after a comment; it is empty if the comment has no end. None if the text does
/// not begin with a comment.
fn after_comment(text: &[u8]) -> Option<&[u8]> {
    let (content, end) = match text {
        [b'/', b'*', content @ ..] => (content, &b"*/"[..]),
        [b'#', content @ ..] | [b'-', b'-', content @ ..] => (content, &b"\n"[..]),
        _ => return None,
    };
    let at = content.windows(end.len()).position(|w| w == end);
    Some(at.map_or(&[][..], |at| &content[at + end.len()..]))
}

/// Returns true if a definition statement may change a table. Ambiguous names count as a match: a
/// non-ASCII name differs in other character sets, and quotes in names are doubled. A session of
/// another database names the table's.
pub(super) fn names(statement: &Query<'_>, database: &str, table: &str) -> bool {
    let is_plain = |name: &str| name.is_ascii() && !name.contains(['`', '"', '\'', '\\']);
    if !is_plain(table) || !is_plain(database) {
        return true;
    }
    let text = statement.text.to_ascii_lowercase();
    let session = statement.database;
    let is_inside = session.is_empty() || session.eq_ignore_ascii_case(database.as_bytes());
    let in_word = |at: Option<&u8>| {
        at.is_some_and(|b| b.is_ascii_alphanumeric() || b"_$".contains(b) || *b >= 0x80)
    };
    let has = |name: &str| {
        let name = name.to_ascii_lowercase();
        let is_here = |at: usize| {
            let before = at.checked_sub(1).and_then(|before| text.get(before));
            text[at..].starts_with(name.as_bytes())
                && !in_word(before)
                && !in_word(text.get(at + name.len()))
        };
        (0..text.len()).any(is_here)
    };
    let is_of_database = has(database);
    (has(table) && (is_inside || is_of_database))
        || (is_of_database && (has("database") || has("schema")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Statement {
        Statement::of(text.as_bytes())
    }

    #[test]
    fn statements_are_classified() {
        for text in ["BEGIN", "begin", "START TRANSACTION", "XA START X'61',X'',1"] {
            assert_eq!(of(text), Statement::Begin, "{text}");
        }
        for text in ["COMMIT", "ROLLBACK", "/* why */ ROLLBACK", "ROLLBACK -- why"] {
            assert_eq!(of(text), Statement::End, "{text}");
        }
        for text in [
            "SAVEPOINT `a`",
            "ROLLBACK TO `a`",
            "ROLLBACK WORK TO a",
            "XA END X'61',X'',1",
            "RELEASE SAVEPOINT a",
        ] {
            assert_eq!(of(text), Statement::Savepoint, "{text}");
        }
        let name = Xid::parse(b"X'7831',X'6272',7");
        assert!(name.is_some());
        assert_eq!(of("XA COMMIT X'7831',X'6272',7"), Statement::XaCommit(name.clone()));
        assert_eq!(of("xa rollback X'7831',X'6272',7\n"), Statement::XaRollback(name));
        assert_eq!(of("XA COMMIT 'x1'"), Statement::XaCommit(None));
        assert_eq!(
            of("TRUNCATE t"),
            Statement::Definition { kind: DefinitionKind::Truncate, has_rows: false }
        );
        let changed = |has_rows| Statement::Definition { kind: DefinitionKind::Schema, has_rows };
        for text in [
            "GRANT a",
            "revoke select on a from b",
            "DROP USER a",
            "CREATE ROLE r",
            "SET DEFAULT ROLE r FOR u",
            "CREATE OR REPLACE USER a@b",
            "create Or rePlace\n\tuser a",
            "CREATE OR REPLACE ROLE r WITH ADMIN u",
            "/* a */ CREATE/* TABLE */OR -- b\n REPLACE # c\n/**/ Role r",
            "DROP /* TABLE */ USER a",
            "CREATE /*!100101 OR REPLACE */ USER a",
            "CREATE /*M!100101 OR REPLACE */ /* TABLE */ ROLE r",
        ] {
            assert_eq!(of(text), Statement::Privileges, "{text}");
        }
        for text in [
            "ALTER TABLE t ADD c INT",
            "-- x\n# y\n/* z */CREATE TABLE t (a INT)",
            "drop table t",
            "CREATE USERS",
            "CREATE OR REPLACE TABLE `user` (a INT)",
            "cReate oR REPLACE table t (a INT)",
            "CREATE OR REPLACE VIEW role AS SELECT 1",
            "CREATE OR /* USER */ REPLACE VIEW v AS SELECT 1",
            "CREATE OR REPLACE /* ROLE */ TABLE t (a INT)",
            "ALTER /* user */ TABLE t ADD c INT",
            "DROP -- ROLE\nTABLE t",
            "ALTER TABLE t /*!50100 PARTITION BY HASH (a) */",
            "ALTER /*!50000 IGNORE */ TABLE t ADD c INT",
            "CREATE OR /* open",
        ] {
            assert_eq!(of(text), changed(false), "{text}");
        }
        assert_eq!(of("CREATE TABLE `t` (`a` int) START TRANSACTION"), changed(true));
        for text in [
            "INSERT INTO t VALUES (1)",
            "/*!50000 ALTER TABLE t */",
            "CALL p()",
            "",
            "/* open",
            "é",
            "WITH a",
        ] {
            assert_eq!(of(text), Statement::Any, "{text}");
        }
    }

    #[test]
    fn ambiguous_names_count_as_named() {
        let from = |session: &str, text: &str, table: &str| {
            names(&Query { database: session.as_bytes(), text: text.as_bytes() }, "shop", table)
        };
        let names = |text: &str, table: &str| from("Shop", text, table);
        assert!(names("TRUNCATE `Products`", "products"));
        assert!(names("ALTER TABLE a,products.b", "products"));
        assert!(names("truncate`products`", "products"));
        assert!(!names("ALTER TABLE a, products_old, my$products", "products"));
        assert!(!names("ALTER TABLE able", "b"));
        assert!(names("DROP DATABASE shop", "products"));
        assert!(names("DROP SCHEMA IF EXISTS `Shop`", "products"));
        assert!(!names("DROP DATABASE other", "products"));
        assert!(!names("CREATE TABLE shop.x (a INT)", "products"));
        assert!(names("CREATE TABLE x (a INT)", "größe"));
        assert!(names("CREATE TABLE x (a INT)", "a`b"));
        assert!(from("", "TRUNCATE products", "products"));
        assert!(!from("other", "TRUNCATE products", "products"));
        assert!(from("other", "RENAME TABLE x TO shop.products", "products"));
        assert!(from("other", "DROP DATABASE shop", "products"));
    }
}
