//! Tenants: who a record belongs to, and who a client is.
//!
//! The tenant of a record is the value of one column, that of a client a claim of its token or a
//! setting of its API key. Both become a [`Tenant`] in one place, so that they can be compared byte
//! by byte: no collation of the database applies, and the integer 7 is the text `7`. A value that
//! cannot be a tenant belongs to none, and no client sees its record.

use std::sync::Arc;

use serde_json::{Deserializer, Value};

/// Most bytes of a tenant as text.
pub const TENANT_BYTES_MAX: usize = 255;
/// Most tenants of one client.
pub const TENANTS_MAX: usize = 64;

/// A tenant as text, of 1 to [`TENANT_BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(Box<str>);

impl Tenant {
    /// Returns the tenant of that text. `None` if it is empty, too long, or has the character
    /// U+FFFD: different bytes that are no text become that one, and must not become one tenant.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_tenant = (1..=TENANT_BYTES_MAX).contains(&text.len());
        (is_tenant && !text.contains(char::REPLACEMENT_CHARACTER)).then(|| Self(text.into()))
    }

    /// Returns the tenant that a JSON value names: a text or an integer. NULL, numbers with a
    /// fraction or an exponent, and everything else name none.
    #[must_use]
    pub fn of_json(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::new(text),
            Value::Number(number) if number.is_i64() || number.is_u64() => {
                Self::new(&number.to_string())
            }
            _ => None,
        }
    }

    /// Returns its bytes, by which it is compared.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Tenants of one client; may be none. A clone shares them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenants(Option<Arc<[Tenant]>>);

/// More tenants than [`TENANTS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there may be at most {TENANTS_MAX} tenants")]
pub struct TooManyTenants;

impl Tenants {
    /// No tenant: such a client sees no record that belongs to one.
    pub const NONE: Self = Self(None);

    /// Takes the tenants of a client, in any order.
    ///
    /// # Errors
    /// [`TooManyTenants`]
    pub fn new(mut tenants: Vec<Tenant>) -> Result<Self, TooManyTenants> {
        tenants.sort_unstable();
        tenants.dedup();
        if tenants.len() > TENANTS_MAX {
            return Err(TooManyTenants);
        }
        Ok(Self((!tenants.is_empty()).then(|| tenants.into())))
    }

    /// Takes the tenants of a claim: one value, or a list of values. Values that name no tenant are
    /// skipped.
    ///
    /// # Errors
    /// [`TooManyTenants`] if a list has more values than [`TENANTS_MAX`].
    pub fn of_claim(claim: Option<&Value>) -> Result<Self, TooManyTenants> {
        match claim {
            Some(Value::Array(list)) if list.len() > TENANTS_MAX => Err(TooManyTenants),
            Some(Value::Array(list)) => {
                Self::new(list.iter().filter_map(Tenant::of_json).collect())
            }
            Some(value) => Self::new(Tenant::of_json(value).into_iter().collect()),
            None => Ok(Self::NONE),
        }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether the tenant with these bytes is one of them.
    pub fn contains(&self, tenant: &[u8]) -> bool {
        let own = self.0.as_deref().unwrap_or_default();
        own.binary_search_by(|own| own.as_bytes().cmp(tenant)).is_ok()
    }
}

/// A row of a collection with a tenant column, as a source delivers it: the value of that column as
/// JSON, and behind it the record, a JSON object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRow<'a> {
    /// Owner of the record; `None`: no tenant.
    pub tenant: Option<Tenant>,
    /// The record.
    pub record: &'a [u8],
}

impl<'a> TenantRow<'a> {
    /// Splits a row. One that has another form belongs to no tenant.
    #[must_use]
    pub fn split(row: &'a [u8]) -> Self {
        let mut values = Deserializer::from_slice(row).into_iter::<Value>();
        match values.next() {
            Some(Ok(tenant)) => {
                let record = row.get(values.byte_offset()..).unwrap_or_default();
                let has_record = record.first() == Some(&b'{');
                Self { tenant: Tenant::of_json(&tenant).filter(|_| has_record), record }
            }
            Some(Err(_)) | None => Self { tenant: None, record: row },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tenant(text: &str) -> Option<Tenant> {
        Some(Tenant::new(text).expect("a tenant"))
    }

    #[test]
    fn texts_and_integers_name_tenants() {
        for (value, text) in [
            (json!("acme"), "acme"),
            (json!("Ácme \u{1f980}"), "Ácme \u{1f980}"),
            (json!("7"), "7"),
            (json!(7), "7"),
            (json!(-7), "-7"),
            (json!(u64::MAX), "18446744073709551615"),
            (json!("x".repeat(TENANT_BYTES_MAX)), &"x".repeat(TENANT_BYTES_MAX)),
        ] {
            assert_eq!(Tenant::of_json(&value), tenant(text), "{value}");
        }
        for value in [
            json!(null),
            json!(true),
            json!(7.0),
            json!(7e0),
            json!(1e30),
            json!(""),
            json!("x".repeat(TENANT_BYTES_MAX + 1)),
            json!("a\u{fffd}"),
            json!(["acme"]),
            json!({"$oid": "a"}),
        ] {
            assert_eq!(Tenant::of_json(&value), None, "{value}");
        }
    }

    #[test]
    fn tenants_are_compared_byte_by_byte() {
        let tenants = Tenants::of_claim(Some(&json!(["b", "acme", 7, "b", null, [1], "é"])));
        let tenants = tenants.expect("few");
        for yes in ["acme", "b", "7", "é"] {
            assert!(tenants.contains(yes.as_bytes()), "{yes}");
        }
        for no in ["", "Acme", "acme ", "acm", "07", "1", "null", "e\u{301}", "É"] {
            assert!(!tenants.contains(no.as_bytes()), "{no}");
        }
        for none in [None, Some(&json!(null)), Some(&json!([])), Some(&json!([{}]))] {
            let none = Tenants::of_claim(none).expect("none");
            assert!(none.is_empty() && !none.contains(b"") && !none.contains(b"null"));
        }
    }

    #[test]
    fn a_client_has_a_bounded_number_of_tenants() {
        let list = |n: usize| json!((0..n).collect::<Vec<_>>());
        let all = Tenants::of_claim(Some(&list(TENANTS_MAX))).expect("as many as allowed");
        assert!(all.contains(b"0") && all.contains(b"63"));
        assert_eq!(Tenants::of_claim(Some(&list(TENANTS_MAX + 1))), Err(TooManyTenants));
    }

    #[test]
    fn a_row_is_its_tenant_and_its_record() {
        for (row, owner, record) in [
            (r#""acme"{"id":1}"#, tenant("acme"), r#"{"id":1}"#),
            (r#""a\"{\\"{"id":1}"#, tenant("a\"{\\"), r#"{"id":1}"#),
            (r#"7{"id":1}"#, tenant("7"), r#"{"id":1}"#),
            (r#"null{}"#, None, "{}"),
            (r#"7.5{}"#, None, "{}"),
            (r#"true{"a":"{"}"#, None, r#"{"a":"{"}"#),
            (r#"{"x":1}{"id":1}"#, None, r#"{"id":1}"#),
        ] {
            let split = TenantRow { tenant: owner, record: record.as_bytes() };
            assert_eq!(TenantRow::split(row.as_bytes()), split, "{row}");
        }
        // Forms that no source delivers.
        for row in ["", "x", r#"{"id":1}"#, r#""acme""#, r#""acme"7"#, "\"a\u{0}\"{}"] {
            assert_eq!(TenantRow::split(row.as_bytes()).tenant, None, "{row}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_tenant_is_found_again(text: String, integer: i64) {
            for value in [json!(text), json!(integer)] {
                let row = format!("{value}{{\"id\":1}}");
                let split = TenantRow::split(row.as_bytes());
                proptest::prop_assert_eq!(&split.tenant, &Tenant::of_json(&value));
                proptest::prop_assert_eq!(split.record, b"{\"id\":1}");
                if let Some(tenant) = split.tenant {
                    let client = Tenants::of_claim(Some(&value)).expect("one");
                    proptest::prop_assert!(client.contains(tenant.as_bytes()));
                }
            }
        }
    }
}
