//! What the grammar accepts, and the reason for each form that it refuses.

use super::{DEPTH_MAX, Dialect, Output, ViewText};

fn mysql(text: &str) -> Result<ViewText, String> {
    ViewText::parse(text, &Dialect::MYSQL).map_err(|fault| fault.to_string())
}

fn sqlite(query: &str) -> Result<ViewText, String> {
    let text = format!("CREATE VIEW v AS {query}");
    ViewText::parse(&text, &Dialect::SQLITE).map_err(|fault| fault.to_string())
}

fn passed(name: &str) -> Output {
    Output::Passed(name.into())
}

#[test]
fn a_view_as_mariadb_writes_it() {
    let view = mysql(
        "select ucase(`shop`.`products`.`name`) AS `title`,`shop`.`products`.`id` AS `nr`,\
         `shop`.`products`.`price` * 2 AS `twice`,1 AS `one` from `shop`.`products` \
         where `shop`.`products`.`price` > 150 and `shop`.`products`.`name` <> 'p3'",
    )
    .unwrap();
    assert_eq!(view.outputs, [Output::Computed, passed("id"), Output::Computed, Output::Computed]);
    assert_eq!((view.schema.as_deref(), view.table.as_str()), (Some("shop"), "products"));
    assert_eq!(view.used, ["name", "price", "price", "name"]);
    let labels: Vec<&str> = view.labels.iter().flatten().map(String::as_str).collect();
    assert_eq!(labels, ["title", "nr", "twice", "one"]);
    let view = mysql(
        "select `p`.`we``ird` AS `a`,case when `p`.`price` > 5 then 'much' else '' end AS `b`,\
         `p`.`price` in (100,-3.5e2) AS `c`,`p`.`price` is not null or `p`.`price` >= 3 AS `d`,\
         -`p`.`price` AS `e`,`p`.`price` - -1 AS `f`,coalesce(`p`.`c`,NULL) AS `g`,\
         `p`.`price` not between 1 and 5 AS `h`,case `p`.`x` when 1 then 2 end AS `i`,\
         if(`p`.`price` > 3,1,0) AS `j`,(`p`.`id` <=> NULL) is true AS `k`,!(`p`.`id`) AS `l` \
         from `shop`.`products` `p` where (`p`.`id` = 1 or `p`.`id` not in ('a','b'))",
    )
    .unwrap();
    assert_eq!(view.outputs.first(), Some(&passed("we`ird")));
    assert!(view.outputs[1..].iter().all(|output| *output == Output::Computed));
    // As MySQL writes it.
    mysql(
        "select `shop`.`t`.`id` AS `id`,upper(`shop`.`t`.`n`) AS `n`,(`shop`.`t`.`p` * 2) AS `q` \
         from `shop`.`t` where ((`shop`.`t`.`p` > 150) and (`shop`.`t`.`n` <> 'p3'))",
    )
    .unwrap();
}

#[test]
fn a_view_as_a_person_wrote_it_for_sqlite() {
    let text = "CREATE VIEW IF NOT EXISTS \"v\" (a, [b c], 'd') AS -- first\n\
         SELECT p.id AS \"x\", /* the '*/ [name], \"price\" * 2 AS 'y' FROM main.products AS p \
         WHERE Price >= 1.5 AND name || '--' <> '' -- last";
    let view = ViewText::parse(text, &Dialect::SQLITE).unwrap();
    assert_eq!(view.outputs, [passed("id"), passed("name"), Output::Computed]);
    assert_eq!((view.schema.as_deref(), view.table.as_str()), (Some("main"), "products"));
    assert_eq!(view.used, ["price", "Price", "name"]);
    assert_eq!(sqlite("SELECT * FROM products").unwrap().outputs, [Output::All]);
    let view = sqlite("select P.*, (id) , null as n from products p").unwrap();
    assert_eq!(view.outputs, [Output::All, Output::Computed, Output::Computed]);
    sqlite("SELECT id, iif(price > 1, abs(price) % 3, -1) AS x FROM t WHERE NOT a IS NOT NULL")
        .unwrap();
}

#[test]
fn all_else_is_refused_with_the_part_that_is_not_accepted() {
    let from = "from `shop`.`t`";
    let cases = [
        (
            format!("select distinct `t`.`id` AS `id` {from}"),
            "no accepted expression at character 8",
        ),
        (format!("select straight_join `t`.`id` AS `id` {from}"), "no accepted expression"),
        (format!("select count(0) AS `c` {from}"), "a function other than abs, coalesce"),
        (format!("select current_timestamp() AS `c` {from}"), "a function other than"),
        (format!("select `shop`.`f`(1) AS `c` {from}"), "something other than FROM"),
        (format!("select `f`(1) AS `c` {from}"), "a function other than"),
        (format!("select row_number() over () AS `c` {from}"), "a function other than"),
        (format!("select `t`.`a` / 2 AS `c` {from}"), "something other than FROM"),
        (format!("select `t`.`a` like 'x' AS `c` {from}"), "something other than FROM"),
        (format!("select (select 1) AS `c` {from}"), "a subquery at character 9"),
        (format!("select `t`.`a` in (select 1) AS `c` {from}"), "a subquery"),
        (format!("select (`t`.`a`,1) in ((1,2)) AS `c` {from}"), "no `)`"),
        (format!("select 'it\\'s' AS `c` {from}"), "a text with a quote, a backslash"),
        (format!("select 0x41 AS `c` {from}"), "a number in a form"),
        (format!("select --`t`.`a` AS `c` {from}"), "no accepted expression"),
        (format!("select @a AS `c` {from}"), "a character that is not accepted"),
        (format!("select \"a\" AS `c` {from}"), "a character that is not accepted"),
        (format!("select id AS `c` {from}"), "no accepted expression"),
        (format!("select _latin1'a' AS `c` {from}"), "no accepted expression"),
        (format!("select DATE'2020-01-01' AS `c` {from}"), "no accepted expression"),
        (format!("select `t`.* {from}"), "no name of a table or a column"),
        (format!("select /* 1 */ `t`.`a` AS `a` {from}"), "no accepted expression"),
        (format!("select `u`.`a` AS `a` {from}"), "a column of another table"),
        (format!("select `t`.`a` AS `a` {from} where"), "no accepted expression"),
        (
            format!("select `t`.`a` AS `a` {from} limit 3"),
            "something besides columns, one table and WHERE",
        ),
        (format!("select `t`.`a` AS `a` {from} join `shop`.`u`"), "something besides columns"),
        (format!("select `t`.`a` AS `a` {from},`shop`.`u`"), "something besides columns"),
        (format!("select `t`.`a` AS `a` {from} PARTITION (`p0`)"), "something besides columns"),
        (format!("select `t`.`a` AS `a` {from} USE INDEX (PRIMARY)"), "something besides columns"),
        (format!("select `t`.`a` AS `a` {from} for update"), "something besides columns"),
        (format!("select `t`.`a` AS `a` {from} order by `t`.`a`"), "something besides columns"),
        (format!("select `t`.`a` AS `a` {from} group by `t`.`a`"), "something besides columns"),
        (format!("select `t`.`a` AS `a` {from} union select 1"), "something besides columns"),
        (format!("select `t`.`a` AS `a` {from} where 1 order by 1"), "something besides columns"),
        ("select 1 AS `a`".to_owned(), "something other than FROM"),
        ("select `p`.`a` AS `a` from (select 1) `p`".to_owned(), "a subquery or a join"),
        ("with `w` as (select 1) select 1".to_owned(), "something other than SELECT"),
        ("select `a".to_owned(), "a quoted name without an end"),
        (String::new(), "something other than SELECT at character 1"),
    ];
    for (text, reason) in &cases {
        let why = mysql(text).expect_err(text);
        assert!(why.contains(reason), "{text}: {reason:?} is not in {why:?}");
    }
}

#[test]
fn what_only_sqlite_accepts_is_refused_with_the_part() {
    let cases = [
        ("SELECT DISTINCT -id AS x FROM t", "no accepted expression"),
        ("SELECT ALL id FROM t", "no accepted expression"),
        ("SELECT (SELECT -1) FROM t", "a subquery"),
        ("SELECT current_timestamp FROM t", "no accepted expression"),
        ("SELECT \"coalesce\"(id, 1) FROM t", "a function other than"),
        ("SELECT random() FROM t", "a function other than"),
        ("SELECT cast(id AS TEXT) FROM t", "a function other than"),
        ("SELECT exists(SELECT 1) FROM t", "a function other than"),
        ("SELECT x'41' FROM t", "something other than FROM"),
        ("SELECT 't'.id FROM t", "something other than FROM"),
        ("SELECT id nr FROM t", "something other than FROM"),
        ("SELECT id -> '$.a' FROM t", "something other than FROM"),
        ("SELECT id COLLATE nocase FROM t", "something other than FROM"),
        ("SELECT id FROM t WHERE id ISNULL", "something besides columns, one table and WHERE"),
        ("SELECT id FROM t WHERE id IS 5", "IS with anything but NULL"),
        ("SELECT id FROM t WHERE id IN u", "no `(`"),
        ("SELECT id FROM t WHERE id IN ()", "no accepted expression"),
        ("SELECT id FROM t WHERE name LIKE 'a'", "something besides columns, one table and WHERE"),
        ("SELECT id FROM t WHERE id = ?1", "a character that is not accepted"),
        ("SELECT id FROM t INDEXED BY i", "something besides columns"),
        ("SELECT id FROM t WINDOW w AS ()", "something besides columns"),
        ("SELECT id FROM t a, t b", "something besides columns"),
        ("SELECT id FROM 't'", "no name of a table or a column"),
        ("SELECT id FROM json_each('[1]')", "a function in FROM"),
        ("SELECT id FROM t /* open", "something besides columns"),
        ("SELECT a.b.c.id FROM t", "something other than FROM"),
        ("VALUES (1)", "something other than SELECT"),
    ];
    for (query, reason) in cases {
        let why = sqlite(query).expect_err(query);
        assert!(why.contains(reason), "{query}: {reason:?} is not in {why:?}");
    }
}

#[test]
fn an_error_quotes_the_text_from_the_part_on() {
    let why = mysql("select `ö`.`a` AS `a` from `s`.`ö` limit 3").unwrap_err();
    let expected =
        "has something besides columns, one table and WHERE at character 36 of its text: limit 3";
    assert_eq!(why, expected);
}

#[test]
fn depth_and_length_have_bounds() {
    let nested = |depth: usize| {
        let text = format!("SELECT {}id{} FROM t", "(".repeat(depth), ")".repeat(depth));
        sqlite(&text)
    };
    assert!(nested(DEPTH_MAX).is_ok());
    assert!(nested(DEPTH_MAX + 1).unwrap_err().contains("nested too deeply"));
    assert!(nested(20_000).unwrap_err().contains("nested too deeply"));
    let long = format!("SELECT id FROM t WHERE id = '{}'", "x".repeat(70_000));
    assert!(sqlite(&long).unwrap_err().contains("at most 65536 are parsed"));
}

proptest::proptest! {
    #[test]
    fn no_text_panics(
        text in "(select|from|where|case|end|not|in|is|as|\
            [-`'\"().,*/|<=>0-9e_ aéx\\\\\\[\\]\n]){0,60}",
    ) {
        drop(mysql(&text));
        drop(mysql(&format!("select {text} from `s`.`t`")));
        drop(sqlite(&text));
        drop(sqlite(&format!("select {text} from t")));
        drop(ViewText::parse(&text, &Dialect::SQLITE));
    }
}
