//! Schemas of served fields: the JSON that a column becomes, as far as the catalogue promises it.
//! They describe the API to its clients; reads do not depend on them.

/// Schema of one field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSchema {
    /// Name of the column.
    pub name: String,
    /// Form of its values other than null.
    pub form: JsonForm,
    /// Whether a value may be null.
    pub nullable: bool,
}

/// Form of a value in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonForm {
    /// A number without fraction and exponent.
    Integer,
    /// Any number.
    Number,
    /// A number, or one of the texts `NaN`, `Infinity` and `-Infinity`.
    Real,
    /// A truth value.
    Boolean,
    /// Any text.
    Text,
    /// A text in the form that the example shows. Rare values may have another one, for instance
    /// an infinite date.
    TextLike(&'static str),
    /// One of these texts.
    Choice(Vec<String>),
    /// A UUID with hyphens.
    Uuid,
    /// Bytes in base64 with padding.
    Base64,
    /// Bytes as hexadecimal digits.
    Hex,
    /// An integer, number or text: the catalogue does not say which.
    Scalar,
    /// An array of these; of several dimensions, an array of such arrays.
    Array(Box<JsonForm>),
    /// A range of these.
    Range(Box<JsonForm>),
    /// A list of ranges of these.
    Multirange(Box<JsonForm>),
    /// An object.
    Object(Vec<FieldSchema>),
    /// An array of embedded rows.
    Rows {
        /// Members of each.
        fields: Vec<FieldSchema>,
        /// Most rows of one record.
        limit: u32,
    },
    /// Any JSON.
    Any,
}

impl FieldSchema {
    /// Creates the schema of a column.
    #[must_use]
    pub fn new(name: &str, form: JsonForm, nullable: bool) -> Self {
        Self { name: name.to_owned(), form, nullable }
    }
}
