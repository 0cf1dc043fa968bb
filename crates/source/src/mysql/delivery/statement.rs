//! Statements in the log: what they mean for transactions, and which collections they may have changed.

use super::super::binlog::Xid;

/// What a statement does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// A transaction begins.
    Begin,
    /// It is committed, or rolled back as a whole: what the log holds of it then did happen (tables without transactions).
    End,
    /// A prepared transaction is committed; none: its name cannot be read.
    XaCommit(Option<Xid>),
    /// A prepared transaction is rolled back.
    XaRollback(Option<Xid>),
    /// It marks something within the transaction.
    Mark,
    /// It may change tables, but only those that it names.
    Definition {
        /// TRUNCATE leaves the table's shape as it is.
        shape: Shape,
        /// Whether rows of the same transaction follow (CREATE TABLE … SELECT of MySQL).
        is_first: bool,
    },
    /// It may change any table: it can call functions and fire triggers.
    Any,
}

/// Whether tables keep their shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Same,
    Changed,
}

/// Statements that change only what they name.
const DEFINITIONS: [&str; 13] = [
    "ALTER",
    "ANALYZE",
    "CHECK",
    "CREATE",
    "DROP",
    "FLUSH",
    "GRANT",
    "INSTALL",
    "OPTIMIZE",
    "RENAME",
    "REPAIR",
    "REVOKE",
    "UNINSTALL",
];

impl Statement {
    pub(super) fn of(text: &[u8]) -> Self {
        let Some(text) = without_comments(text) else { return Self::Any };
        let mut words = text.split(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).filter(|word| !word.is_empty());
        let mut next = || words.next().map(|word| word.to_ascii_uppercase());
        let first = next();
        let Some(first) = first.as_deref().and_then(|word| std::str::from_utf8(word).ok()) else { return Self::Any };
        let second = next();
        let second = second.as_deref().and_then(|word| std::str::from_utf8(word).ok()).unwrap_or("");
        match (first, second) {
            ("BEGIN", _) | ("START", "TRANSACTION") | ("XA", "START" | "BEGIN") => Self::Begin,
            ("COMMIT", _) => Self::End,
            ("ROLLBACK", "TO" | "WORK") if text.to_ascii_uppercase().windows(4).any(|w| w == b" TO ") => Self::Mark,
            ("ROLLBACK", _) => Self::End,
            ("SAVEPOINT" | "RELEASE", _) | ("XA", "END") => Self::Mark,
            ("XA", "COMMIT") => Self::XaCommit(xid(text)),
            ("XA", "ROLLBACK") => Self::XaRollback(xid(text)),
            ("TRUNCATE", _) => Self::Definition { shape: Shape::Same, is_first: false },
            (word, _) if DEFINITIONS.contains(&word) => {
                let is_first = text.trim_ascii_end().to_ascii_uppercase().ends_with(b"START TRANSACTION");
                Self::Definition { shape: Shape::Changed, is_first }
            }
            _ => Self::Any,
        }
    }
}

/// The name of a prepared transaction after `XA COMMIT`.
fn xid(text: &[u8]) -> Option<Xid> {
    let at = text.iter().position(|b| *b == b'\'')?;
    Xid::parse(text.get(at.checked_sub(1)?..)?.trim_ascii_end())
}

/// The text without the blanks and comments before it; none when it begins with a comment that is executed, or has no end.
fn without_comments(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        text = text.trim_ascii_start();
        if let Some(comment) = text.strip_prefix(b"/*") {
            if comment.starts_with(b"!") || comment.starts_with(b"M!") {
                return None;
            }
            let end = comment.windows(2).position(|w| w == b"*/")?;
            text = &comment[end + 2..];
        } else if text.starts_with(b"#") || text.starts_with(b"--") {
            let end = text.iter().position(|b| *b == b'\n')?;
            text = &text[end + 1..];
        } else {
            return Some(text);
        }
    }
}

/// Whether a statement that changes only what it names may change a table. When in doubt, yes: in another character set a
/// name that is not ASCII looks different, and one with quotes is written with more of them.
pub(super) fn names(text: &[u8], database: &str, table: &str) -> bool {
    let is_plain = |name: &str| name.is_ascii() && !name.contains(['`', '"', '\'', '\\']);
    if !is_plain(table) || !is_plain(database) {
        return true;
    }
    let text = text.to_ascii_lowercase();
    let in_word = |at: Option<&u8>| at.is_some_and(|b| b.is_ascii_alphanumeric() || b"_$".contains(b) || *b >= 0x80);
    let has = |name: &str| {
        let name = name.to_ascii_lowercase();
        let is_here = |at: usize| {
            let before = at.checked_sub(1).and_then(|before| text.get(before));
            text[at..].starts_with(name.as_bytes()) && !in_word(before) && !in_word(text.get(at + name.len()))
        };
        (0..text.len()).any(is_here)
    };
    has(table) || (has(database) && (has("database") || has("schema")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Statement {
        Statement::of(text.as_bytes())
    }

    #[test]
    fn statements_are_told_apart() {
        for text in ["BEGIN", "begin", "START TRANSACTION", "XA START X'61',X'',1"] {
            assert_eq!(of(text), Statement::Begin, "{text}");
        }
        for text in ["COMMIT", "ROLLBACK", "/* why */ ROLLBACK"] {
            assert_eq!(of(text), Statement::End, "{text}");
        }
        for text in
            ["SAVEPOINT `a`", "ROLLBACK TO `a`", "ROLLBACK WORK TO a", "XA END X'61',X'',1", "RELEASE SAVEPOINT a"]
        {
            assert_eq!(of(text), Statement::Mark, "{text}");
        }
        let name = Xid::parse(b"X'7831',X'6272',7");
        assert!(name.is_some());
        assert_eq!(of("XA COMMIT X'7831',X'6272',7"), Statement::XaCommit(name.clone()));
        assert_eq!(of("xa rollback X'7831',X'6272',7\n"), Statement::XaRollback(name));
        assert_eq!(of("XA COMMIT 'x1'"), Statement::XaCommit(None));
        assert_eq!(of("TRUNCATE t"), Statement::Definition { shape: Shape::Same, is_first: false });
        let changed = |is_first| Statement::Definition { shape: Shape::Changed, is_first };
        for text in ["ALTER TABLE t ADD c INT", "-- x\n# y\n/* z */CREATE TABLE t (a INT)", "drop table t", "GRANT a"] {
            assert_eq!(of(text), changed(false), "{text}");
        }
        assert_eq!(of("CREATE TABLE `t` (`a` int) START TRANSACTION"), changed(true));
        for text in ["INSERT INTO t VALUES (1)", "/*!50000 ALTER TABLE t */", "CALL p()", "", "/* open", "é", "WITH a"]
        {
            assert_eq!(of(text), Statement::Any, "{text}");
        }
    }

    #[test]
    fn a_table_is_named_when_its_name_may_be_there() {
        let names = |text: &str, table: &str| names(text.as_bytes(), "shop", table);
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
    }
}
