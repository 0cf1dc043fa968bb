//! Forms of the values in JSON, for descriptions of the API.

use hotrow_source::field_schema::JsonForm;

use super::Scalar;

impl Scalar {
    /// Returns the form of a value other than NULL.
    pub(crate) fn form(self) -> JsonForm {
        match self {
            Self::Integer | Self::Bit => JsonForm::Integer,
            Self::Decimal => JsonForm::Number,
            Self::Float | Self::Double => JsonForm::Real,
            Self::Text | Self::Name => JsonForm::Text,
            Self::Json | Self::CheckedJson => JsonForm::Any,
            Self::Binary => JsonForm::Base64,
            Self::Hex => JsonForm::Hex,
            Self::Uuid => JsonForm::Uuid,
            Self::Date => JsonForm::TextLike("2026-11-20"),
            Self::DateTime => JsonForm::TextLike("2026-11-20T22:35:09.5"),
            Self::Timestamp => JsonForm::TextLike("2026-11-20T22:35:09.5Z"),
            Self::Time => JsonForm::TextLike("22:35:09.5"),
        }
    }
}
