//! Views by their text, for databases whose catalogue has nothing else about them.
//!
//! A row of an accepted view is a function of the row of one table: the text is `SELECT` with
//! columns and expressions, `FROM` one table, and optionally `WHERE`. Accepted is what this grammar
//! names. All else is refused with the part at which the grammar ends, so that a construct which a
//! server adds is refused, too.
//!
//! The database has parsed the text before. So the grammar may accept more arrangements of the
//! accepted tokens than the database does, for instance regardless of precedence. It must not read
//! a token as anything else than the database does.

mod dialect;
mod fault;
mod tokens;

#[cfg(test)]
mod tests;

pub use self::dialect::Dialect;
pub use self::fault::Fault;
use self::tokens::{Placed, Token, split};

/// Depth up to which expressions may be nested.
const DEPTH_MAX: usize = 64;

/// Words that are no names without quotes: the keywords of SQLite that can occur in an expression
/// or end one.
const RESERVED: &str = "all and as asc between by case cast collate create cross current_date \
    current_time current_timestamp distinct else end escape except exists filter from full glob \
    group having in indexed inner intersect is isnull join left like limit match natural not \
    notnull null on or order outer over raise regexp right select then union using values when \
    where with";

/// A view as its text defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewText {
    /// Columns of the view, in order.
    pub outputs: Vec<Output>,
    /// Names after AS, for each of them.
    pub labels: Vec<Option<String>>,
    /// Schema of the table, where the text has it.
    pub schema: Option<String>,
    /// Name of the table in FROM, as the text has it.
    pub table: String,
    /// Columns of the table that expressions and WHERE use, other than passed ones.
    pub used: Vec<String>,
}

/// Column of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A column of the table as it is, with its name there.
    Passed(String),
    /// An expression.
    Computed,
    /// All columns of the table as they are: `*`.
    All,
}

impl ViewText {
    /// Parses the text of a view.
    ///
    /// # Errors
    /// The first part that is not accepted.
    pub fn parse(text: &str, dialect: &'static Dialect) -> Result<Self, Fault> {
        let tokens = split(text, dialect)?;
        let mut parser = Parser {
            text,
            dialect,
            tokens: &tokens,
            at: 0,
            qualifiers: Vec::new(),
            used: Vec::new(),
        };
        parser.view()
    }
}

/// Position in a text's tokens.
struct Parser<'a> {
    text: &'a str,
    dialect: &'static Dialect,
    tokens: &'a [Placed],
    at: usize,
    /// Names before the dot of columns.
    qualifiers: Vec<(usize, String)>,
    used: Vec<String>,
}

impl Parser<'_> {
    fn view(&mut self) -> Result<ViewText, Fault> {
        if self.dialect.is_as_typed {
            self.header()?;
        }
        self.expect_word("select")?;
        let (output, label) = self.output()?;
        let (mut outputs, mut labels) = (vec![output], vec![label]);
        while self.take_sign(",") {
            let (output, label) = self.output()?;
            outputs.push(output);
            labels.push(label);
        }
        self.expect_word("from")?;
        let (schema, table) = self.table()?;
        let mut alias = table.clone();
        let has_as = self.take_word("as");
        if has_as || !self.is_word("where") && self.peek_name().is_some() {
            alias = self.name()?;
        }
        if self.take_word("where") {
            self.expression(0)?;
        }
        if let Some(next) = self.tokens.get(self.at) {
            return Err(self.fault_of(next, "something besides columns, one table and WHERE"));
        }
        let is_other = |(_, name): &&(usize, String)| !name.eq_ignore_ascii_case(&alias);
        if let Some((at, _)) = self.qualifiers.iter().find(is_other) {
            return Err(self.fault_at(*at, "a column of another table"));
        }
        Ok(ViewText { outputs, labels, schema, table, used: std::mem::take(&mut self.used) })
    }

    /// Skips `CREATE VIEW name (columns) AS`.
    fn header(&mut self) -> Result<(), Fault> {
        self.expect_word("create")?;
        self.expect_word("view")?;
        if self.take_word("if") {
            self.expect_word("not")?;
            self.expect_word("exists")?;
        }
        self.label()?;
        if self.take_sign("(") {
            self.label()?;
            while self.take_sign(",") {
                self.label()?;
            }
            self.expect_sign(")")?;
        }
        self.expect_word("as")
    }

    /// Parses a column of the view with its name.
    fn output(&mut self) -> Result<(Output, Option<String>), Fault> {
        let start = self.at;
        if self.dialect.is_as_typed {
            let has_table = self.peek_name().is_some() && self.sign_at(1) == Some(".");
            let star = if has_table { 2 } else { 0 };
            if self.sign_at(star) == Some("*") {
                if has_table {
                    let qualifier = self.name()?;
                    self.qualifiers.push((start, qualifier));
                    self.at += 1;
                }
                self.at += 1;
                return Ok((Output::All, None));
            }
        }
        let used_before = self.used.len();
        self.expression(0)?;
        let is_path = (start..self.at).all(|at| match (at - start) % 2 {
            0 => matches!(self.token(at), Some(Token::Name(_) | Token::Word(_))),
            _ => self.token(at) == Some(&Token::Sign(".")),
        });
        let label = if self.take_word("as") { self.label()? } else { None };
        // A word may also be a literal, which uses no column.
        let is_passed = is_path && self.used.len() == used_before + 1;
        let passed = if is_passed { self.used.pop() } else { None };
        Ok((passed.map_or(Output::Computed, Output::Passed), label))
    }

    /// Parses the name of the table in FROM.
    fn table(&mut self) -> Result<(Option<String>, String), Fault> {
        if self.sign_at(0) == Some("(") {
            return Err(self.fault("a subquery or a join"));
        }
        let first = self.name()?;
        let named = match self.take_sign(".") {
            true => (Some(first), self.name()?),
            false => (None, first),
        };
        if self.sign_at(0) == Some("(") {
            return Err(self.fault("a function in FROM"));
        }
        Ok(named)
    }

    /// Parses operands with operators between them.
    fn expression(&mut self, depth: usize) -> Result<(), Fault> {
        if depth > DEPTH_MAX {
            return Err(self.fault("an expression that is nested too deeply"));
        }
        loop {
            while self.take_word("not") || self.take_any(self.dialect.prefixes) {}
            self.operand(depth + 1)?;
            self.tests(depth + 1)?;
            let is_joined = self.take_any(self.dialect.operators)
                || ["and", "or", "between"].into_iter().any(|word| self.take_word(word));
            if !is_joined {
                return Ok(());
            }
        }
    }

    /// Parses the tests after an operand: IS NULL and the like, IN, and the NOT before BETWEEN.
    fn tests(&mut self, depth: usize) -> Result<(), Fault> {
        loop {
            if self.take_word("is") {
                self.take_word("not");
                if !["null", "true", "false"].into_iter().any(|word| self.take_word(word)) {
                    return Err(self.fault("IS with anything but NULL, TRUE and FALSE"));
                }
                continue;
            }
            let is_negated =
                self.is_word("not") && (self.word_at(1, "in") || self.word_at(1, "between"));
            self.at += usize::from(is_negated);
            if !self.take_word("in") {
                return Ok(());
            }
            self.expect_sign("(")?;
            self.list(depth)?;
        }
    }

    /// Parses expressions up to the closing parenthesis.
    fn list(&mut self, depth: usize) -> Result<(), Fault> {
        self.expression(depth)?;
        while self.take_sign(",") {
            self.expression(depth)?;
        }
        self.expect_sign(")")
    }

    fn operand(&mut self, depth: usize) -> Result<(), Fault> {
        match self.token(self.at) {
            Some(Token::Number | Token::Text) => {
                self.at += 1;
                Ok(())
            }
            Some(Token::Sign("(")) => {
                self.at += 1;
                self.expression(depth)?;
                self.expect_sign(")")
            }
            Some(Token::Word(_) | Token::Name(_)) if self.sign_at(1) == Some("(") => {
                let is_accepted = matches!(self.token(self.at), Some(Token::Word(word))
                    if self.dialect.functions.contains(&word.to_ascii_lowercase().as_str()));
                if !is_accepted {
                    let accepted = self.dialect.functions.join(", ");
                    return Err(self.fault(&format!("a function other than {accepted}")));
                }
                self.at += 2;
                self.list(depth)
            }
            Some(Token::Word(_)) if self.is_word("case") => self.case(depth),
            Some(Token::Word(_))
                if ["null", "true", "false"].into_iter().any(|word| self.is_word(word)) =>
            {
                self.at += 1;
                Ok(())
            }
            Some(Token::Word(_)) if self.is_word("select") => Err(self.fault("a subquery")),
            Some(Token::Word(_) | Token::Name(_)) if self.peek_name().is_some() => self.column(),
            Some(_) | None => Err(self.fault("no accepted expression")),
        }
    }

    /// Parses `column`, `table.column` or `schema.table.column`.
    fn column(&mut self) -> Result<(), Fault> {
        let start = self.at;
        let mut path = vec![self.name()?];
        while path.len() < 3 && self.take_sign(".") {
            path.push(self.name()?);
        }
        self.used.extend(path.pop());
        self.qualifiers.extend(path.pop().map(|table| (start, table)));
        Ok(())
    }

    fn case(&mut self, depth: usize) -> Result<(), Fault> {
        self.expect_word("case")?;
        if !self.is_word("when") {
            self.expression(depth)?;
        }
        self.expect_word("when")?;
        loop {
            self.expression(depth)?;
            self.expect_word("then")?;
            self.expression(depth)?;
            if !self.take_word("when") {
                break;
            }
        }
        if self.take_word("else") {
            self.expression(depth)?;
        }
        self.expect_word("end")
    }

    /// Takes the name of a table or a column.
    fn name(&mut self) -> Result<String, Fault> {
        let Some(name) = self.peek_name().map(str::to_owned) else {
            return Err(self.fault("no name of a table or a column"));
        };
        self.at += 1;
        Ok(name)
    }

    /// Returns the name of a table or a column that comes next. In SQLite a word may be one.
    fn peek_name(&self) -> Option<&str> {
        match self.token(self.at)? {
            Token::Name(name) => Some(name),
            Token::Word(word) => {
                let is_reserved =
                    RESERVED.split(' ').any(|reserved| reserved.eq_ignore_ascii_case(word));
                (self.dialect.is_as_typed && !is_reserved).then_some(word)
            }
            Token::Text | Token::Number | Token::Sign(_) => None,
        }
    }

    /// Takes a name that the view gives itself or a column. SQLite accepts a text there, too, which
    /// is skipped.
    fn label(&mut self) -> Result<Option<String>, Fault> {
        if self.dialect.is_as_typed && self.token(self.at) == Some(&Token::Text) {
            self.at += 1;
            return Ok(None);
        }
        self.name().map(Some)
    }

    fn token(&self, at: usize) -> Option<&Token> {
        self.tokens.get(at).map(|placed| &placed.token)
    }

    fn sign_at(&self, ahead: usize) -> Option<&'static str> {
        match self.token(self.at + ahead)? {
            Token::Sign(sign) => Some(sign),
            _ => None,
        }
    }

    fn word_at(&self, ahead: usize, word: &str) -> bool {
        let token = self.token(self.at + ahead);
        matches!(token, Some(Token::Word(found)) if found.eq_ignore_ascii_case(word))
    }

    fn is_word(&self, word: &str) -> bool {
        self.word_at(0, word)
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is_next = self.is_word(word);
        self.at += usize::from(is_next);
        is_next
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        self.take_any(&[sign])
    }

    fn take_any(&mut self, signs: &[&str]) -> bool {
        let is_next = self.sign_at(0).is_some_and(|sign| signs.contains(&sign));
        self.at += usize::from(is_next);
        is_next
    }

    fn expect_word(&mut self, word: &str) -> Result<(), Fault> {
        if self.take_word(word) {
            return Ok(());
        }
        Err(self.fault(&format!("something other than {}", word.to_ascii_uppercase())))
    }

    fn expect_sign(&mut self, sign: &str) -> Result<(), Fault> {
        if self.take_sign(sign) { Ok(()) } else { Err(self.fault(&format!("no `{sign}`"))) }
    }

    fn fault(&self, what: &str) -> Fault {
        self.fault_at(self.at, what)
    }

    fn fault_at(&self, at: usize, what: &str) -> Fault {
        match self.tokens.get(at) {
            Some(placed) => self.fault_of(placed, what),
            None => Fault::at(self.text, self.text.len(), self.text.len(), what),
        }
    }

    fn fault_of(&self, placed: &Placed, what: &str) -> Fault {
        Fault::at(self.text, placed.start, self.text.len(), what)
    }
}
