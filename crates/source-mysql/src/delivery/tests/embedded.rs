//! Changes of embedded rows, which are changes of the records that contain them.

use super::super::super::inspect::Embedded;
use super::*;

const UPDATE: u8 = 24;
/// Bits of the columns that an image has: all, or the primary key alone.
const ALL: u8 = 3;
const MINIMAL: u8 = 1;

/// Returns table `a` of collection 0 with the rows of `c` in its records, which refer by `n`.
fn embedding(parents_of_c: &[&str]) -> Scenario {
    let mut parent = table(0, "a", &[]);
    let mut child = table(0, "c", parents_of_c);
    child.key[0].name = "n".into();
    child.key[0].position = 1;
    parent.embedded = vec![Embedded::of_table("rows", child)];
    Scenario { tables: vec![Some(parent)], ..Scenario::new() }
}

/// Returns an event about one row of `c`, which is table 9: its images, each with the bits of its
/// columns. Without a parent the column is NULL.
fn event(images: &[(u8, i32, Option<i32>)]) -> Vec<u8> {
    let mut bytes = vec![9, 0, 0, 0, 0, 0, 1, 0, 2];
    bytes.extend(images.iter().map(|(present, ..)| present));
    for (present, id, parent) in images {
        bytes.push(if *present == ALL && parent.is_none() { 2 } else { 0 });
        bytes.extend(id.to_le_bytes());
        if *present == ALL {
            bytes.extend(parent.iter().flat_map(|parent| parent.to_le_bytes()));
        }
    }
    bytes
}

/// Runs transactions of one event about `c` each, which end at 190, 290, and so on.
fn run(scenario: Scenario, events: &[(u8, Vec<u8>)]) -> Vec<String> {
    let c = map(9, "c");
    let mut steps = Vec::new();
    for ((kind, bytes), at) in events.iter().zip((100..).step_by(100)) {
        steps.extend([
            (at + 50, Event::MariaGtid(Begin::Transaction)),
            (at + 60, decode(19, &c)),
            (at + 80, decode(*kind, bytes)),
            (at + 90, Event::Commit),
        ]);
    }
    scenario.run(steps).unwrap().0
}

#[test]
fn a_child_changes_the_parent_that_it_had_and_the_one_that_it_has() {
    let changed =
        |kind: u8, images: &[(u8, i32, Option<i32>)]| run(embedding(&[]), &[(kind, event(images))]);
    let of = |parent: i64| format!("{} @190", key(0, parent));
    assert_eq!(changed(INSERT, &[(ALL, 5, Some(1))]), [of(1)]);
    assert_eq!(changed(DELETE, &[(ALL, 5, Some(1))]), [of(1)]);
    assert_eq!(changed(UPDATE, &[(ALL, 5, Some(1)), (ALL, 5, Some(1))]), [of(1)]);
    assert_eq!(changed(UPDATE, &[(ALL, 5, Some(1)), (ALL, 5, Some(2))]), [of(1), of(2)]);
    assert_eq!(changed(UPDATE, &[(ALL, 5, Some(1)), (ALL, 5, None)]), [of(1)]);
    assert_eq!(changed(UPDATE, &[(ALL, 5, None), (ALL, 5, Some(2))]), [of(2)]);
    assert!(changed(INSERT, &[(ALL, 5, None)]).is_empty());
    // An image of changed columns alone: the parent is that of the old one.
    assert_eq!(changed(UPDATE, &[(ALL, 5, Some(1)), (MINIMAL, 6, None)]), [of(1)]);
}

#[test]
fn an_image_without_the_parent_is_a_change_of_all_with_its_mark() {
    for images in [&[(MINIMAL, 5, None), (ALL, 5, Some(2))][..], &[(MINIMAL, 5, None); 2]] {
        let delivered =
            run(embedding(&[]), &[(UPDATE, event(images)), (INSERT, event(&[(ALL, 6, Some(3))]))]);
        // The session's choice is no doubt about the table: the next change is precise.
        assert_eq!(delivered, ["flush 0 Bulk @190".to_owned(), format!("{} @290", key(0, 3))]);
    }
    let deleted = run(embedding(&[]), &[(DELETE, event(&[(MINIMAL, 5, None)]))]);
    assert_eq!(deleted, ["flush 0 Bulk @190"]);
}

#[test]
fn statements_about_the_children_and_their_shape_flush_the_parents() {
    for (text, cause) in [("TRUNCATE c", "Bulk"), ("ALTER TABLE c ADD m int", "Schema")] {
        let text = query(text);
        let steps = vec![(150, Event::MariaGtid(Begin::Standalone)), (190, decode(2, &text))];
        assert_eq!(embedding(&[]).run(steps).unwrap().0, [format!("flush 0 {cause} @190")]);
    }
    let (narrow, mut wide) = (map(9, "c"), map(9, "c"));
    // The second column is a BIGINT now.
    let types = wide.len() - 3;
    wide[types] = 8;
    let steps = vec![
        (150, Event::MariaGtid(Begin::Transaction)),
        (160, decode(19, &narrow)),
        (170, decode(19, &wide)),
        (190, Event::Commit),
    ];
    assert_eq!(embedding(&[]).run(steps).unwrap().0, ["flush 0 Schema @190"]);
}

/// MariaDB describes the child without rows of it, and MySQL the table above it alone.
#[test]
fn cascades_to_the_children_flush_the_parents() {
    let (b, c) = (map(10, "b"), map(9, "c"));
    let r = rows(10, &[5]);
    let run = |kind: u8, is_described: bool| {
        let mut steps = vec![(150, Event::MariaGtid(Begin::Transaction)), (160, decode(19, &b))];
        if is_described {
            steps.push((170, decode(19, &c)));
        }
        steps.extend([(180, decode(kind, &r)), (190, Event::Commit)]);
        embedding(&["b"]).run(steps).unwrap().0
    };
    assert_eq!(run(DELETE, false), ["flush 0 Bulk @190"]);
    assert_eq!(run(INSERT, true), ["flush 0 Bulk @190"]);
    assert!(run(INSERT, false).is_empty());
}

/// Faults that the tests of processes find, and the events above too.
#[test]
fn each_rule_of_the_feed_counts() {
    let scenario = |rule: &'static [EmbeddedRule]| Scenario {
        rules: EmbeddedRules::without(rule),
        ..embedding(&["b"])
    };
    let moved = event(&[(ALL, 5, Some(1)), (ALL, 5, Some(2))]);
    let blind = event(&[(MINIMAL, 5, None), (ALL, 5, Some(2))]);
    let of = |parent: i64, at: u32| vec![format!("{} @{at}", key(0, parent))];
    let run = |rule, event: &Vec<u8>| run(scenario(rule), &[(UPDATE, event.clone())]);
    assert_eq!(run(&[EmbeddedRule::OldParent], &moved), of(2, 190));
    assert_eq!(run(&[EmbeddedRule::MissingParent], &blind), of(2, 190));
    assert_eq!(run(&[EmbeddedRule::Mark], &moved), [of(1, 0), of(2, 0)].concat());
    let (truncate, b, r) = (query("TRUNCATE c"), map(10, "b"), rows(10, &[5]));
    let steps = vec![(150, Event::MariaGtid(Begin::Standalone)), (190, decode(2, &truncate))];
    assert!(scenario(&[EmbeddedRule::Statement]).run(steps).unwrap().0.is_empty());
    let steps = vec![
        (150, Event::MariaGtid(Begin::Transaction)),
        (160, decode(19, &b)),
        (180, decode(DELETE, &r)),
        (190, Event::Commit),
    ];
    assert!(scenario(&[EmbeddedRule::Cascade]).run(steps).unwrap().0.is_empty());
}
