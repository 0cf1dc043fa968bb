//! Dialects of the databases.

/// What a database calls its names, and which functions depend on nothing but their arguments.
#[derive(Debug)]
pub struct Dialect {
    /// Opening and closing quotes of names.
    pub(super) name_quotes: &'static [(char, char)],
    /// True for a text as a person typed it, with CREATE VIEW, comments, `*`, and names without
    /// quotes. False for one that the server wrote.
    pub(super) is_as_typed: bool,
    /// In lower case.
    pub(super) functions: &'static [&'static str],
    /// Signs between two expressions.
    pub(super) operators: &'static [&'static str],
    /// Signs before an expression.
    pub(super) prefixes: &'static [&'static str],
}

impl Dialect {
    /// `VIEW_DEFINITION` of MariaDB and MySQL: every name is quoted and has its table.
    ///
    /// - No `/`: its scale depends on `div_precision_increment`. No `concat`: a result longer than
    ///   `max_allowed_packet` is NULL.
    /// - The functions are the server's own, whatever loadable or stored functions there are: a
    ///   stored function is printed with its database.
    pub const MYSQL: Self = Self {
        name_quotes: &[('`', '`')],
        is_as_typed: false,
        functions: &[
            "abs", "coalesce", "if", "ifnull", "lcase", "lower", "nullif", "ucase", "upper",
        ],
        operators: &["=", "<>", "!=", "<", "<=", ">", ">=", "<=>", "+", "-", "*"],
        prefixes: &["-", "+", "!"],
    };

    /// `sqlite_schema.sql` of SQLite.
    pub const SQLITE: Self = Self {
        name_quotes: &[('"', '"'), ('`', '`'), ('[', ']')],
        is_as_typed: true,
        functions: &[
            "abs", "coalesce", "ifnull", "iif", "length", "lower", "nullif", "trim", "upper",
        ],
        operators: &["=", "==", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||"],
        prefixes: &["-", "+"],
    };

    /// Returns the accepted functions, in lower case.
    pub const fn functions(&self) -> &'static [&'static str] {
        self.functions
    }
}
