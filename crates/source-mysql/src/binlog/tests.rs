//! Events as written by MariaDB 10.11, and damaged ones.

use mysql_async::Value;

use super::rows::{Cell, Operation};
use super::*;

/// Parses hexadecimal digits and skips blanks.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let digit = |b: u8| char::from(b).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect()
}

/// Table map of `CREATE TABLE d.g (pt POINT NOT NULL, y YEAR, n INT UNSIGNED, c VARCHAR(10)
/// CHARACTER SET latin1, e ENUM('a'), c2 CHAR(5), uu UUID, b4 BINARY(4), PRIMARY KEY (c, c2))`.
const MAP: &str = "190000000000 0100 01 64 00 01 67 00 08 ff0d030ffefefefe \
    0b 04 0a00 f701 fe14 fe10 fe04 d6 01 01c0 02 053f0108022d 07 0101 04 14 \
    02 7074 01 79 01 6e 01 63 01 65 02 6332 02 7575 02 6234 0a 0109 06 03010161 08 020305";
/// One row of that table.
const ROW: &str = "190000000000 0100 08 ff 00 19000000 00000000 01 01000000 000000000000f03f \
    000000000000f03f 64 05000000 01 61 01 01 62 0f 123e4567e89b12d3a456426614174000 02 0020";

fn map(bytes: &[u8]) -> TableMap<'_> {
    match Event::decode(19, bytes) {
        Ok(Event::Table(map)) => map,
        other => panic!("{other:?}"),
    }
}

fn cells(
    kind: u8,
    rows: &[u8],
    map: &TableMap<'_>,
    key: &[usize],
) -> Result<Vec<Vec<Cell>>, DecodeError> {
    let Event::Rows(rows) = Event::decode(kind, rows)? else { panic!("no rows") };
    let mut all = Vec::new();
    rows.keys(&map.columns()?, key, |cells| all.push(cells.to_vec())).map(|()| all)
}

#[test]
fn keys_are_decoded_between_columns_of_every_type() {
    let table = hex(MAP);
    let map = map(&table);
    assert_eq!((map.id, map.database, map.name), (25, &b"d"[..], &b"g"[..]));
    let names = map.names().unwrap().unwrap();
    assert_eq!(names, ["pt", "y", "n", "c", "e", "c2", "uu", "b4"].map(str::as_bytes));
    // The log omits the last byte of the UUID, a zero.
    let mut row = hex(ROW);
    let at = row.len() - 4;
    row.remove(at);
    let bytes = |b: &[u8]| Some(Value::Bytes(b.to_vec()));
    let all = cells(23, &row, &map, &[5, 2, 3, 7, 0, 1]).unwrap();
    assert_eq!(
        all,
        [vec![bytes(b"b"), Some(Value::Int(5)), bytes(b"a"), bytes(b"\0\x20"), None, None]]
    );
}

#[test]
fn an_update_fills_the_new_image_from_the_old() {
    // A table of two integers, the first of them the key, and images with some of the columns.
    let table = hex("12 0000000000 0100 01 64 00 01 6b 00 02 0308 00 02");
    let map = map(&table);
    assert_eq!(map.names(), Ok(None));
    let update = |first: &str, second: &str, rows: &str| {
        hex(&format!("120000000000 0100 02 {first} {second} {rows}"))
    };
    let seven = Some(Value::Int(7));
    let nine = Some(Value::Int(-9));
    // The old image has the key, the new one the other column.
    let minimal = update("01", "02", "00 07000000 00 0500000000000000");
    assert_eq!(cells(24, &minimal, &map, &[0]).unwrap(), [[seven.clone()], [seven.clone()]]);
    let moved = update("03", "01", "02 07000000 00 f7ffffff");
    assert_eq!(cells(24, &moved, &map, &[0]).unwrap(), [[seven.clone()], [nine]]);
    // Neither image has the key.
    let keyless = update("02", "02", "00 0100000000000000 00 0200000000000000");
    assert_eq!(cells(24, &keyless, &map, &[0]).unwrap(), [[None], [None]]);
    // Two rows in version 2, preceded by extra data.
    let insert = hex("120000000000 0100 0300aa 02 01 00 07000000 00 07000000");
    assert_eq!(cells(30, &insert, &map, &[0]).unwrap(), [[seven.clone()], [seven]]);
}

#[test]
fn truncated_events_are_errors() {
    let table = hex("120000000000 0100 01 64 00 01 6b 00 02 0308 00 02");
    let map = map(&table);
    let insert = hex("120000000000 0100 02 03 00 07000000 0100000000000000");
    assert!(cells(23, &insert, &map, &[0]).is_ok());
    // Every end within the row. The header is complete.
    for end in 12..insert.len() {
        assert!(cells(23, &insert[..end], &map, &[0]).is_err(), "{end}");
    }
    assert!(
        cells(23, &hex("120000000000 0100 03 07 00 07000000"), &map, &[0]).is_err(),
        "three columns"
    );
    assert!(cells(23, &hex("120000000000 0100 02 00"), &map, &[0]).unwrap().is_empty());
    assert_eq!(cells(166, &insert, &map, &[0]), Err(DecodeError::Unreadable), "compressed");
    for unknown in ["14", "f3", "00", "ff"] {
        let table = hex(&format!("120000000000 0100 01 64 00 01 6b 00 01 {unknown} 00 00"));
        let Ok(Event::Table(map)) = Event::decode(19, &table) else { panic!("{unknown}") };
        assert!(map.columns().is_err(), "{unknown}");
    }
    for end in 0..table.len() {
        assert!(Event::decode(19, &table[..end]).is_err(), "{end}");
    }
}

#[test]
fn events_are_decoded_by_type() {
    let decode =
        |kind, bytes: &str| Event::decode(kind, &hex(bytes)).map(|event| format!("{event:?}"));
    assert_eq!(
        decode(162, "0500000000000000 00000000 0c 4c01000000000000").unwrap(),
        "MariaGtid(Transaction)"
    );
    assert_eq!(
        decode(162, "0800000000000000 00000000 29 000000000000").unwrap(),
        "MariaGtid(Standalone)"
    );
    assert_eq!(
        decode(162, "0600000000000000 00000000 8c 4c01000000").unwrap(),
        "MariaGtid(Standalone)"
    );
    assert_eq!(decode(16, "0800000000000000").unwrap(), "Commit");
    let prepare = decode(38, "00 01000000 02000000 00000000 7831").unwrap();
    assert_eq!(prepare, r#"Prepare { xid: Xid("x1", "", 1), is_one_phase: false }"#);
    assert!(decode(38, "00 01000000 ff000000 ffffffff 7831").is_err());
    let mut query = hex("05000000 00000000 01 0000 0200 aabb 64 00");
    query.extend(b"TRUNCATE t");
    assert_eq!(
        Event::decode(2, &query),
        Ok(Event::Query(Query { database: b"d", text: b"TRUNCATE t" }))
    );
    assert!(Event::decode(2, &query[..14]).is_err());
    let mut rotate = hex("0400000000000000");
    rotate.extend(b"bin.000002");
    assert_eq!(Event::decode(4, &rotate), Ok(Event::Rotate { file: b"bin.000002", at: 4 }));
    assert_eq!(Event::decode(25, &hex("ffffff000000 0100")), Ok(Event::StatementEnd));
    assert_eq!(Event::decode(160, b"annotation"), Ok(Event::Other));
    let rows = hex("120000000000 0000 01");
    let rows = Event::decode(25, &rows);
    assert!(matches!(
        rows,
        Ok(Event::Rows(Rows {
            operation: Operation::Delete,
            ends_statement: false,
            table: 18,
            ..
        }))
    ));
}

#[test]
fn xids_have_one_form() {
    let xid = Xid::parse(b"X'7831',X'62',7").unwrap();
    assert_eq!(xid, Xid { format: 7, global: b"x1".to_vec(), branch: b"b".to_vec() });
    for bad in ["", "X'78',X''", "X'7',X'',1", "'x1','',1", "X'78',X'',x", "X'78',X'',1,2"] {
        assert_eq!(Xid::parse(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn the_decoder_survives_mutated_events() {
    let seeds: Vec<(u8, Vec<u8>)> = [
        (19, MAP.to_owned()),
        (23, ROW.to_owned()),
        (24, "190000000000 0100 02 01 02 00 07000000 00 0500000000000000".to_owned()),
        (2, "05000000 00000000 01 0000 0200 aabb 64 00 5452".to_owned()),
        (38, "00 01000000 02000000 00000000 7831".to_owned()),
        (162, "0500000000000000 00000000 0c 4c01000000000000".to_owned()),
    ]
    .map(|(kind, bytes)| (kind, hex(&bytes)))
    .into();
    let table = seeds[0].1.clone();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        // xorshift64
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize % below
    };
    for _ in 0..100_000 {
        let (kind, mut bytes) = seeds[next(seeds.len())].clone();
        for _ in 0..=next(4) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = next(256) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, [0, 0xff, 0xfe, 0x7f][next(4)]),
            }
        }
        match Event::decode(kind, &bytes) {
            Ok(Event::Table(map)) => drop((map.columns(), map.names())),
            Ok(Event::Rows(rows)) => {
                _ = rows.keys(&map(&table).columns().unwrap(), &[0, 3, 5], |_| {});
            }
            _ => {}
        }
    }
}
