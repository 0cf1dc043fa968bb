//! NULL, short and hostile rows, and the rule that no other module reads rows by the driver.

use std::path::Path;

use super::*;

/// Calls `read` with NULL, with bytes that are no text and with a number in each field in turn,
/// and with short rows. It may fail and must not panic. It must accept the row itself.
pub(crate) fn survives_hostile_rows<T>(
    good: &[Value],
    read: impl Fn(&CatalogRow) -> Result<T, Error>,
) {
    assert!(read(&CatalogRow::of(good.to_vec())).is_ok(), "{good:?}");
    for hostile in
        [Value::NULL, Value::Bytes(b"\xff\xfe".to_vec()), Value::Int(-1), Value::UInt(u64::MAX)]
    {
        for column in 0..good.len() {
            let mut row = good.to_vec();
            row[column] = hostile.clone();
            drop(read(&CatalogRow::of(row)));
        }
    }
    for len in 0..good.len() {
        assert!(read(&CatalogRow::of(good[..len].to_vec())).is_err(), "{len} of {good:?}");
    }
}

#[test]
fn null_is_an_error_only_where_a_value_is_required() {
    let row = CatalogRow::of(vec![Value::NULL, Value::Bytes(b"7".to_vec())]);
    assert_eq!(row.nullable::<String>(0, "a").unwrap(), None);
    assert_eq!(row.text(0, "a").unwrap(), "");
    let why = row.required::<String>(0, "a").unwrap_err();
    assert_eq!(crate::error::full_text(&why), "the server's answer has NULL in `a`");
    assert_eq!(
        (row.required::<u64>(1, "b").unwrap(), row.text(1, "b").unwrap()),
        (7, "7".to_owned())
    );
    assert!(row.required::<String>(2, "c").is_err());
    survives_hostile_rows(
        &[Value::Bytes(b"x".to_vec()), Value::Bytes(b"y".to_vec())],
        name_and_value,
    );
}

/// Collects the lines of this engine's files, except its tests, that use the driver's typed
/// queries.
fn typed_queries(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        if path.is_dir() && name != "tests" {
            typed_queries(&path, found);
        } else if name.ends_with(".rs") && name != "catalog_row.rs" && name != "tests.rs" {
            let text = std::fs::read_to_string(&path).unwrap();
            let typed = |line: &&str| {
                [".query(", ".query_first", ".query_map", ".exec(", ".exec_first"]
                    .iter()
                    .any(|q| line.contains(q))
            };
            // `lease.query` is a method of the pool with raw values.
            let of_driver =
                text.lines().filter(typed).filter(|line| !line.contains("lease.query("));
            found.extend(of_driver.map(|line| format!("{name}: {}", line.trim())));
        }
    }
}

#[test]
fn no_other_module_uses_typed_queries() {
    let mut found = Vec::new();
    typed_queries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert_eq!(found, [""; 0], "read these by `catalog_row`: the driver panics on NULL");
}
