//! Reader of one table of the file: the type, range and default of each key. Keys that were not
//! read are unknown.
//!
//! It walks the spanned document and is not derived, for two reasons: it finds all problems in one
//! pass, and the list of known keys (for suggestions and the check of the documentation) is
//! recorded by the reads, so there is no second list.

mod context;
mod kind;

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use hotrow_types::names::nearest;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::expand::expand;
use super::problem::shown;
use super::units;

pub(super) use self::context::{Context, line_of};
pub use self::context::{DefaultKeys, Known};
use self::kind::{Kind, kind_name, path_part, quoted};

/// Keys whose values may be or contain secrets: no message repeats them.
const SECRET: [&str; 7] =
    ["token", "url", "feed_url", "read_urls", "hs256_secret", "secret", "sha256"];

/// One table of the file, or its absence.
pub(super) struct Section<'a> {
    ctx: &'a Context<'a>,
    path: String,
    documented_as: String,
    /// Byte offset of its name in the file.
    at: Option<usize>,
    table: Option<&'a DeTable<'a>>,
    names: Vec<&'static str>,
}

/// A single value, expanded.
pub(super) struct Scalar {
    kind: Kind,
    /// Value as written in the file, for messages.
    shown: String,
    at: usize,
}

/// Parsing and display of one type of value.
struct Format<T> {
    noun: &'static str,
    read: fn(&Kind) -> Option<T>,
    show: fn(T) -> String,
}

/// Texts about a key: its default, the rule of a refusal, and the range in the documentation.
struct Words<'t> {
    default: &'t str,
    rule: &'t str,
    range: &'t str,
}

/// Text value of a key, and its form in the file.
pub(super) struct Text {
    pub(super) value: String,
    pub(super) shown: String,
}

impl<'a> Section<'a> {
    pub(super) fn root(ctx: &'a Context<'a>, table: &'a DeTable<'a>) -> Self {
        Self {
            ctx,
            path: String::new(),
            documented_as: String::new(),
            at: None,
            table: Some(table),
            names: Vec::new(),
        }
    }

    /// Returns the table of that name in this one.
    pub(super) fn section(&mut self, name: &'static str) -> Section<'a> {
        self.names.push(name);
        let found = self.entry(name).map(|(key, value)| (key.span().start, value.get_ref()));
        let documented_as = if self.documented_as.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.documented_as)
        };
        self.inner(found, self.path_of(name), documented_as)
    }

    /// Returns every table below this one with its name, ordered by name; documented as `NAME`.
    pub(super) fn sections(&mut self) -> Vec<(String, Section<'a>)> {
        let entries: Vec<_> = self.table.into_iter().flatten().collect();
        self.named(entries)
    }

    /// Ends the reading of a table whose tables have names of the user's own. Returns those that
    /// were not read, documented as `NAME`; other keys are unknown.
    pub(super) fn finish_with_sections(mut self) -> Vec<(String, Section<'a>)> {
        let others = self
            .table
            .into_iter()
            .flatten()
            .filter(|(key, _)| !self.names.contains(&&**key.get_ref()));
        let (tables, unknown): (Vec<_>, Vec<_>) =
            others.partition(|(_, value)| matches!(value.get_ref(), DeValue::Table(_)));
        unknown.into_iter().for_each(|(key, value)| self.refuse_unknown(key, value));
        self.named(tables)
    }

    fn named(
        &mut self,
        entries: Vec<(&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>)>,
    ) -> Vec<(String, Section<'a>)> {
        let documented_as = format!("{}.NAME", self.documented_as);
        entries
            .into_iter()
            .map(|(key, value)| {
                let name: &str = key.get_ref();
                let path = format!("{}.{}", self.path, path_part(name));
                let found = Some((key.span().start, value.get_ref()));
                (name.to_owned(), self.inner(found, path, documented_as.clone()))
            })
            .collect()
    }

    fn inner(
        &self,
        found: Option<(usize, &'a DeValue<'a>)>,
        path: String,
        documented_as: String,
    ) -> Section<'a> {
        let at = found.map(|(at, _)| at);
        let table = match found {
            None => None,
            Some((_, DeValue::Table(table))) => Some(table),
            Some((_, value)) => {
                self.ctx.refuse(
                    path.clone(),
                    at,
                    format!("must be a table, [{path}], not {}", kind_name(value)),
                );
                None
            }
        };
        Section { ctx: self.ctx, path, documented_as, at, table, names: Vec::new() }
    }

    /// Ends the reading: every key that was not read is unknown.
    pub(super) fn finish(self) {
        let unknown = self
            .table
            .into_iter()
            .flatten()
            .filter(|(key, _)| !self.names.contains(&&**key.get_ref()));
        unknown.for_each(|(key, value)| self.refuse_unknown(key, value));
    }

    fn refuse_unknown(&self, key: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) {
        let name: &str = key.get_ref();
        let near = nearest(name, &self.names);
        let hint = if near.is_empty() {
            format!("known here: {}", self.names.join(", "))
        } else {
            format!("did you mean {}?", near.join(" or "))
        };
        let kind = if matches!(value.get_ref(), DeValue::Table(_)) { "table" } else { "key" };
        let problem = self.ctx.problems.borrow().len();
        self.ctx.unknown.borrow_mut().push((problem, kind, name.to_owned()));
        self.ctx.refuse(
            self.path_of(&path_part(name)),
            Some(key.span().start),
            format!("unknown {kind}; {hint}"),
        );
    }

    /// Returns the key of a collection that names none, if the catalogue was asked.
    pub(super) fn default_key(&self, collection: &str) -> Option<Vec<String>> {
        self.ctx.without_key.borrow_mut().push(collection.to_owned());
        self.ctx.default_keys.get(collection).cloned()
    }

    /// Refuses the value of `name`, which was read before.
    pub(super) fn refuse(&self, name: &str, what: impl Display) {
        let at = self.find(name).map(|(_, at)| at.start);
        self.ctx.refuse(self.path_of(name), at, what.to_string());
    }

    pub(super) fn refuse_whole(&self, what: &str) {
        self.ctx.refuse(self.path.clone(), self.at, what.to_owned());
    }

    /// Returns whether the file has this table.
    pub(super) fn is_present(&self) -> bool {
        self.at.is_some()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub(super) fn flag(&mut self, name: &'static str, default: bool) -> bool {
        let read = |kind: &Kind| if let Kind::Flag(flag) = kind { Some(*flag) } else { None };
        let rule = "true or false";
        self.value(name, &Words { default: &default.to_string(), rule, range: rule }, read)
            .unwrap_or(default)
    }

    pub(super) fn count(
        &mut self,
        name: &'static str,
        default: usize,
        range: RangeInclusive<usize>,
    ) -> usize {
        self.count_or(name, default, &default.to_string(), range)
    }

    /// Reads a number whose default depends on the machine; `default_words` describes the default.
    pub(super) fn count_or(
        &mut self,
        name: &'static str,
        default: usize,
        default_words: &str,
        range: RangeInclusive<usize>,
    ) -> usize {
        let format = Format {
            noun: "a whole number",
            read: |kind| usize::try_from(kind.integer()?).ok(),
            show: |n| n.to_string(),
        };
        self.bounded(name, default, default_words, range, &format)
    }

    pub(super) fn share(
        &mut self,
        name: &'static str,
        default: f64,
        range: RangeInclusive<f64>,
    ) -> f64 {
        let format = Format { noun: "a number", read: Kind::number, show: |n| n.to_string() };
        self.bounded(name, default, &default.to_string(), range, &format)
    }

    pub(super) fn size(
        &mut self,
        name: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> u64 {
        self.size_or(name, default, &quoted(units::format_size(default)), range)
    }

    /// Reads a size whose default depends on the machine; `default_words` describes the default.
    pub(super) fn size_or(
        &mut self,
        name: &'static str,
        default: u64,
        default_words: &str,
        range: RangeInclusive<u64>,
    ) -> u64 {
        let format = Format {
            noun: "a size such as 64KiB or 256MiB",
            read: Kind::size,
            show: units::format_size,
        };
        self.bounded(name, default, default_words, range, &format)
    }

    /// Reads a size that this machine can address.
    pub(super) fn size_in_memory(
        &mut self,
        name: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> usize {
        usize::try_from(self.size(name, default, range)).unwrap_or(usize::MAX)
    }

    pub(super) fn duration(
        &mut self,
        name: &'static str,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Duration {
        self.duration_or(name, default, &quoted(units::format_duration(default)), range)
    }

    /// Reads a duration whose default is another key's value; `default_words` names that key.
    pub(super) fn duration_or(
        &mut self,
        name: &'static str,
        default: Duration,
        default_words: &str,
        range: RangeInclusive<Duration>,
    ) -> Duration {
        let read = |kind: &Kind| {
            if let Kind::Text(text) = kind { units::parse_duration(text) } else { None }
        };
        let format = Format {
            noun: "a time with its unit such as \"250ms\" or \"5m\"",
            read,
            show: units::format_duration,
        };
        self.bounded(name, default, default_words, range, &format)
    }

    /// Reads one of a few words; the first is the default.
    pub(super) fn choice<T: Copy, const N: usize>(
        &mut self,
        name: &'static str,
        choices: [(&str, T); N],
    ) -> T {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
        let read = |kind: &Kind| {
            let Kind::Text(text) = kind else { return None };
            choices.iter().find(|(word, _)| word == text).map(|(_, value)| *value)
        };
        let rule = words.join(" or ");
        self.value(name, &Words { default: &words[0], rule: &rule, range: &rule }, read)
            .unwrap_or(choices[0].1)
    }

    /// Reads a text that a type can parse, such as an address.
    pub(super) fn parsed<T: std::str::FromStr>(
        &mut self,
        name: &'static str,
        default: &str,
        rule: &str,
    ) -> Option<T> {
        let read = |kind: &Kind| match kind {
            Kind::Text(text) => text.parse().ok(),
            Kind::Integer(number) => number.to_string().parse().ok(),
            _ => None,
        };
        let value = self.value(name, &Words { default: &quoted(default), rule, range: rule }, read);
        if value.is_some() || self.has(name) { value } else { default.parse().ok() }
    }

    /// Reads any text; `default` and `range` are for the documentation, the caller checks the
    /// value.
    pub(super) fn text(&mut self, name: &'static str, default: &str, range: &str) -> Option<Text> {
        let scalar = self.scalar(name, default, range)?;
        match scalar.kind {
            Kind::Text(value) => Some(Text { value, shown: scalar.shown }),
            _ => {
                self.refuse_at(name, scalar.at, format!("must be a text, not {}", scalar.shown));
                None
            }
        }
    }

    /// Reads one text or a list of texts.
    pub(super) fn texts(
        &mut self,
        name: &'static str,
        default: &str,
        range: &str,
    ) -> Option<Vec<String>> {
        self.know(name, default, range);
        let (value, at) = self.find(name)?;
        let DeValue::Array(items) = value else {
            return self.text(name, default, range).map(|text| vec![text.value]);
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items.iter() {
            match self.expanded(name, item.get_ref(), item.span()) {
                Some(Scalar { kind: Kind::Text(text), .. }) => texts.push(text),
                Some(other) => {
                    self.refuse_at(
                        name,
                        at.start,
                        format!("must be a list of texts, not of {}", other.shown),
                    );
                    return None;
                }
                None => return None,
            }
        }
        Some(texts)
    }

    /// Records that `name` is a key here.
    fn know(&mut self, name: &'static str, default: &str, range: &str) {
        if !self.names.contains(&name) {
            self.names.push(name);
            let path = format!("{}.{name}", self.documented_as);
            self.ctx.known.borrow_mut().push(Known {
                path,
                default: default.to_owned(),
                range: range.to_owned(),
            });
        }
    }

    fn bounded<T: PartialOrd + Copy>(
        &mut self,
        name: &'static str,
        default: T,
        default_words: &str,
        range: RangeInclusive<T>,
        format: &Format<T>,
    ) -> T {
        let low = (format.show)(*range.start());
        let high = (format.show)(*range.end());
        let noun = format.noun;
        let rule = format!("{noun} between {low} and {high}");
        let range_words = format!("{low} to {high}");
        let words = Words { default: default_words, rule: &rule, range: &range_words };
        self.value(name, &words, |kind| (format.read)(kind).filter(|v| range.contains(v)))
            .unwrap_or(default)
    }

    fn value<T>(
        &mut self,
        name: &'static str,
        words: &Words<'_>,
        read: impl Fn(&Kind) -> Option<T>,
    ) -> Option<T> {
        let scalar = self.scalar(name, words.default, words.range)?;
        let value = read(&scalar.kind);
        if value.is_none() {
            self.refuse_at(
                name,
                scalar.at,
                format!("must be {}, not {}", words.rule, scalar.shown),
            );
        }
        value
    }

    fn scalar(&mut self, name: &'static str, default: &str, range: &str) -> Option<Scalar> {
        self.know(name, default, range);
        let (value, at) = self.find(name)?;
        self.expanded(name, value, at)
    }

    fn expanded(&self, name: &str, value: &DeValue<'_>, at: Range<usize>) -> Option<Scalar> {
        let at = at.start;
        let (kind, shown) = match value {
            DeValue::String(text) => match expand(text, self.ctx.env) {
                Ok(value) => (Kind::Text(value), shown(text)),
                Err(why) => {
                    let is_secret = SECRET.contains(&name);
                    let value = if is_secret { "not shown here".to_owned() } else { shown(text) };
                    self.refuse_at(name, at, format!("{why}; the value is {value}"));
                    return None;
                }
            },
            DeValue::Integer(i) => match i128::from_str_radix(i.as_str(), i.radix()) {
                Ok(n) => (Kind::Integer(n), n.to_string()),
                Err(_) => (Kind::Other, "a number with too many digits".to_owned()),
            },
            DeValue::Float(f) => {
                (Kind::Float(f.as_str().parse().unwrap_or(f64::NAN)), f.as_str().to_owned())
            }
            DeValue::Boolean(flag) => (Kind::Flag(*flag), flag.to_string()),
            DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
                (Kind::Other, kind_name(value).to_owned())
            }
        };
        Some(Scalar { kind, shown, at })
    }

    fn find(&self, name: &str) -> Option<(&'a DeValue<'a>, Range<usize>)> {
        self.entry(name).map(|(_, value)| (value.get_ref(), value.span()))
    }

    fn entry(&self, name: &str) -> Option<(&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>)> {
        self.table?.iter().find(|(key, _)| key.get_ref() == name)
    }

    fn refuse_at(&self, name: &str, at: usize, what: String) {
        self.ctx.refuse(self.path_of(name), Some(at), what);
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}
