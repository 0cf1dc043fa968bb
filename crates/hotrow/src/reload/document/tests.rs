//! Differences of two files, and what is put in force of them.

use super::*;

const BASE: &str = "[source]\nurl = \"sqlite:/tmp/a.db\"\n[collections.a]\nttl = \"1m\"\n\
    [collections.b]\nkey = \"b\"\n[access.jwt]\nhs256_secret = \"x\"\n";

fn parse(text: &str) -> Document {
    Document::parse(text).unwrap()
}

/// Returns what the change of `from` to `to` applies, and what it leaves.
fn compare(before: &Document, file: &Document) -> (Document, String, String) {
    let Difference { next, applied, left } = before.compare(file);
    let left: Vec<_> = left.into_iter().map(|left| left.path).collect();
    (next, applied.join(" "), left.join(" "))
}

fn changed(from: &str, to: &str) -> (Document, String, String) {
    assert!(BASE.contains(from), "{from}");
    compare(&parse(BASE), &parse(&BASE.replace(from, to)))
}

#[test]
fn a_comment_and_another_order_change_nothing() {
    let other = "# a comment\n[access.jwt]\nhs256_secret = \"x\"\n[collections]\nb.key = \"b\"\n\
        a = { ttl = \"1m\" }\n[source]\nurl = \"sqlite:/tmp/a.db\"\n";
    let (next, applied, left) = compare(&parse(BASE), &parse(other));
    assert_eq!((next, &*applied, &*left), (parse(BASE), "", ""));
}

#[test]
fn what_is_left_keeps_its_value_and_the_rest_changes() {
    let to = "/tmp/b.db\"\n[limits]\nheaders = 9\nchecks_per_s = 5\n[listen.tls]\ncert = \"c\"\n\
        [log]\nlevel = \"debug\"";
    let (next, applied, left) = changed("/tmp/a.db\"", to);
    assert_eq!(applied, "limits.headers log.level");
    assert_eq!(left, "limits.checks_per_s listen.tls.cert source.url");
    let expected =
        BASE.replace("/tmp/a.db\"", "/tmp/a.db\"\n[limits]\nheaders = 9\n[log]\nlevel = \"debug\"");
    assert_eq!(next, parse(&expected), "no empty table is left behind");
    assert_eq!(parse(&next.text().unwrap()), next);
    // The file is compared again with what is in force: what was left is left again.
    let (_, applied, left) = compare(&next, &parse(&BASE.replace("/tmp/a.db\"", to)));
    assert_eq!((&*applied, &*left), ("", "limits.checks_per_s listen.tls.cert source.url"));
}

#[test]
fn a_removed_key_is_a_difference_too() {
    let before = parse(&format!("{BASE}[limits]\nheaders = 9\n[warm]\nfile = \"/x\"\n"));
    let (next, applied, left) = compare(&before, &parse(BASE));
    assert_eq!((&*applied, &*left), ("limits.headers", "warm.file"));
    assert_eq!(next, parse(&format!("{BASE}[warm]\nfile = \"/x\"\n")));
}

#[test]
fn a_collection_leaves_with_its_table_known_and_may_return() {
    let without = BASE.replace("[collections.b]\nkey = \"b\"\n", "");
    let (gone, applied, left) = compare(&parse(BASE), &parse(&without));
    assert_eq!((&*applied, &*left), ("collections.b", ""));
    assert!(gone.removed.contains("b") && gone.text().unwrap().contains("key = \"b\""));
    let (still_gone, applied, left) = compare(&gone, &parse(&without));
    assert_eq!((&still_gone, &*applied, &*left), (&gone, "", ""));
    let (back, applied, left) = compare(&gone, &parse(BASE));
    assert_eq!((back, &*applied, &*left), (parse(BASE), "collections.b", ""));
    let other = BASE.replace("key = \"b\"", "key = \"c\"\nttl = \"1s\"");
    let (back, applied, left) = compare(&gone, &parse(&other));
    assert_eq!((&*applied, &*left), ("collections.b collections.b.ttl", "collections.b.key"));
    assert!(back.removed.is_empty() && back.text().unwrap().contains("key = \"b\""));
}

#[test]
fn a_new_collection_and_another_table_are_left() {
    let (next, applied, left) = changed("key = \"b\"", "key = \"c\"\n[collections.\"c d\"]");
    assert_eq!((next, &*applied), (parse(BASE), ""));
    assert_eq!(left, "collections.\"c d\" collections.b.key");
}

#[test]
fn tokens_change_while_their_keys_come_from_one_place() {
    let secret = "hs256_secret = \"x\"";
    let (_, applied, left) = changed(secret, "hs256_secret = \"y\"\nissuer = \"i\"");
    assert_eq!((&*applied, &*left), ("access.jwt.hs256_secret access.jwt.issuer", ""));
    let (_, applied, left) = changed("[access.jwt]\nhs256_secret = \"x\"\n", "");
    assert_eq!((&*applied, &*left), ("access.jwt.hs256_secret", ""));
    let (next, applied, left) = changed(secret, "jwks_file = \"f\"\nissuer = \"i\"");
    assert_eq!((next, &*applied), (parse(BASE), ""));
    assert_eq!(left, "access.jwt.hs256_secret access.jwt.issuer access.jwt.jwks_file");
}

#[test]
fn a_table_is_touched_by_the_keys_in_it() {
    let (touches, not) = (["access", "limits.rate"], ["acces", "limits.rate.a", "log"]);
    let difference = |applied: &str| Difference {
        next: Document::default(),
        applied: vec![applied.to_owned()],
        left: Vec::new(),
    };
    assert!(difference("access.keys.a.id").touches(&touches));
    assert!(difference("limits.rate.a.rate").touches(&touches));
    assert!(!difference("access.keys.a.id").touches(&not));
    assert!(!difference("limits.rates.a").touches(&touches));
}
