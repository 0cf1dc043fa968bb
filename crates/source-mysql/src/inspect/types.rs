//! Select expression and parser of a column by its type.

use super::super::json::Scalar;
use super::Select;
use super::catalog::Column;

/// Returns none for an unknown type.
pub(super) fn of(column: &Column, is_json: bool) -> Option<(Select, Scalar)> {
    let plain = |scalar| Some((Select::Plain, scalar));
    match column.data_type.as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" => plain(Scalar::Integer),
        "decimal" => plain(Scalar::Decimal),
        // As text, a FLOAT has only six digits and a DOUBLE has all.
        "float" => Some((Select::Double, Scalar::Float)),
        "double" => plain(Scalar::Double),
        "bit" => plain(Scalar::Bit),
        "json" => plain(Scalar::Json),
        "longtext" if is_json => plain(Scalar::CheckedJson),
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" | "set" => {
            plain(Scalar::Text)
        }
        "uuid" | "inet6" | "inet4" => plain(Scalar::Name),
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "vector" => {
            plain(Scalar::Binary)
        }
        "date" => plain(Scalar::Date),
        "datetime" => plain(Scalar::DateTime),
        "timestamp" => plain(Scalar::Timestamp),
        "time" => plain(Scalar::Time),
        "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
        | "multipolygon" | "geometrycollection" | "geomcollection" => {
            Some((Select::Wkb, Scalar::Binary))
        }
        _ => None,
    }
}
