//! Forms of the values in JSON, for descriptions of the API.

use hotrow_source::field_schema::{FieldSchema, JsonForm};

use super::{Field, Scalar, Shape};

impl Shape {
    /// Returns the form of a value other than NULL.
    pub(crate) fn form(&self) -> JsonForm {
        let of = |shape: &Self| Box::new(shape.form());
        match self {
            Self::Scalar(scalar) => scalar.form(),
            Self::Enum(labels) => JsonForm::Choice(labels.clone()),
            Self::Array(element) => JsonForm::Array(of(element)),
            Self::Range(subtype) => JsonForm::Range(of(subtype)),
            Self::Multirange(subtype) => JsonForm::Multirange(of(subtype)),
            Self::Composite(fields) => JsonForm::Object(fields.iter().map(Field::schema).collect()),
        }
    }
}

impl Field {
    /// Returns the schema of a member of a composite type, which no NOT NULL binds.
    fn schema(&self) -> FieldSchema {
        FieldSchema::new(&self.name, self.shape.form(), true)
    }
}

impl Scalar {
    fn form(self) -> JsonForm {
        match self {
            Self::Bool => JsonForm::Boolean,
            Self::Int2 | Self::Int4 | Self::Int8 | Self::Oid => JsonForm::Integer,
            Self::Float4 | Self::Float8 | Self::Numeric => JsonForm::Real,
            Self::Text => JsonForm::Text,
            Self::Json | Self::Jsonb => JsonForm::Any,
            Self::Bytea => JsonForm::Base64,
            Self::Hex => JsonForm::Hex,
            Self::Uuid => JsonForm::Uuid,
            Self::Date => JsonForm::TextLike("2026-11-20"),
            Self::Time => JsonForm::TextLike("22:35:09.5"),
            Self::TimeTz => JsonForm::TextLike("22:35:09+01:00"),
            Self::Timestamp => JsonForm::TextLike("2026-11-20T22:35:09.37875"),
            Self::TimestampTz => JsonForm::TextLike("2026-11-20T22:35:09.37875Z"),
            Self::Interval => JsonForm::TextLike("P1Y2M3DT4H5M6.5S"),
            Self::Inet => JsonForm::TextLike("192.0.2.0/24"),
            Self::MacAddr => JsonForm::TextLike("08:00:2b:01:02:03"),
            Self::Bit => JsonForm::TextLike("10110"),
            Self::Lsn => JsonForm::TextLike("16/B374D848"),
        }
    }
}
