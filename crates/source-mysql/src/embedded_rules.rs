//! Rules by which records with embedded rows are read and followed.

use super::rule_set::RuleSet;

/// Rule of embedded rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddedRule {
    /// A changed child is a change of the parent that it had, too.
    OldParent,
    /// A row image without the parent is a change of every parent.
    MissingParent,
    /// A statement about the table of the children, such as TRUNCATE, is a change of every parent.
    Statement,
    /// Children that a foreign key may have changed are a change of every parent.
    Cascade,
    /// A change of a parent by its child has the mark of its commit.
    Mark,
    /// Parent and children are read by one statement.
    OneStatement,
}

#[cfg(any(test, feature = "failpoints"))]
impl EmbeddedRule {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::OldParent,
        Self::MissingParent,
        Self::Statement,
        Self::Cascade,
        Self::Mark,
        Self::OneStatement,
    ];

    /// Returns the rule of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|rule| format!("{rule:?}") == name)
    }
}

/// Rules of embedded rows that are in force.
pub type EmbeddedRules = RuleSet<EmbeddedRule>;
