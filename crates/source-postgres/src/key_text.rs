//! Texts of key values as printed by the server, converted to the form of ids.
//!
//! The feed carries a value as its type's output function prints it, a read as a cast to text does;
//! the sessions of both are set to ISO dates and UTC. Values that no id can name (`infinity`, years
//! before 1, `NaN`) stay unchanged: no key can be made of them.
//!
//! Reference `databases`: Keys of PostgreSQL
//!
//! One to four columns that deletes carry.
//!
//! Other types are refused. `NaN`, infinities and other years have no id.
//!
//! - integers: decimal, without leading zeros; `boolean`: `true`, `false`.
//! - `numeric`: decimal, without exponent and leading zeros; trailing zeros of the fraction do not
//!   count.
//! - `text`, `varchar`, `char(n)`, enums: the text; trailing blanks of `char(n)` do not count.
//! - `citext`, non-deterministic collations: any equal spelling; only the stored one is cached,
//!   others and missing ids are read each time.
//! - `uuid`, `bytea`: hexadecimal.
//! - `date`: `2026-11-20`, years 1 to 9999.
//! - `timestamp`, `timestamptz`: `2026-11-20T22:35:09.37875` without trailing zeros; `Z` for
//!   `timestamptz`.

use std::borrow::Cow;

use hotrow_types::key::{CanonicalForm, KeyType};

/// Returns the text of a key value of this type as in an id.
pub(crate) fn from_server(ty: KeyType, text: &str) -> Cow<'_, str> {
    let KeyType::Canonical(form) = ty else { return text.into() };
    match form {
        CanonicalForm::Boolean => match text {
            "t" => "true".into(),
            "f" => "false".into(),
            _ => text.into(),
        },
        CanonicalForm::Timestamp => text.replacen(' ', "T", 1).into(),
        CanonicalForm::TimestampUtc => match text.strip_suffix("+00") {
            Some(utc) => format!("{}Z", utc.replacen(' ', "T", 1)).into(),
            None => text.into(),
        },
        CanonicalForm::Decimal | CanonicalForm::Date => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_values_become_the_text_of_ids() {
        for (form, printed, id) in [
            (CanonicalForm::Boolean, "t", Some("true")),
            (CanonicalForm::Boolean, "false", Some("false")),
            (CanonicalForm::Decimal, "9.50", Some("9.5")),
            (CanonicalForm::Decimal, "0.00", Some("0")),
            (CanonicalForm::Decimal, "NaN", None),
            (CanonicalForm::Date, "2024-02-29", Some("2024-02-29")),
            (CanonicalForm::Date, "0044-03-15 BC", None),
            (CanonicalForm::Date, "infinity", None),
            (CanonicalForm::Timestamp, "2024-02-29 12:00:00.5", Some("2024-02-29T12:00:00.5")),
            (CanonicalForm::Timestamp, "-infinity", None),
            (CanonicalForm::TimestampUtc, "2024-02-29 12:00:00+00", Some("2024-02-29T12:00:00Z")),
            (CanonicalForm::TimestampUtc, "10000-01-01 00:00:00+00", None),
            (CanonicalForm::TimestampUtc, "0044-03-15 12:00:00+00 BC", None),
            // Another time zone: from a session with other settings than ours.
            (CanonicalForm::TimestampUtc, "2024-02-29 12:00:00+02", None),
        ] {
            let text = from_server(KeyType::Canonical(form), printed);
            assert_eq!(form.canonical(&text).as_deref(), id, "{printed}");
        }
        assert_eq!(from_server(KeyType::Integer, "7"), "7");
    }
}
