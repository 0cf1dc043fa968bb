//! Reads of standbys: what they have to prove, and what becomes of one that cannot.

use hotrow_types::version::Position;

use super::harness::{Reader, config, wait};
use super::server::{ROLE, Server, Stop};
use hotrow_source::spec::EmbedConfig;
use hotrow_source::standby::{StandbyRead, StandbyRefusal};
use hotrow_source::{Row, Source as _};

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)";

/// A primary with a role of the documented rights, and the tables of [`TABLE`].
fn primary() -> Server {
    let server = Server::start(&[]);
    server.batch(TABLE);
    server.make_reader_role(&["t"]);
    server.batch("GRANT pg_read_all_stats TO hotrow");
    server
}

fn reader(primary: &Server, standbys: &[&Server]) -> Reader {
    let mut config = config(&primary.url_for(ROLE, "postgres"), &["t(id)"]);
    config.server.read_urls =
        standbys.iter().map(|standby| standby.url_for(ROLE, "postgres")).collect();
    Reader::open(config)
}

/// Returns the end of the primary's log.
fn log_end(primary: &Server) -> Position {
    let at = primary.query("SELECT pg_current_wal_flush_lsn() - '0/0'");
    Position { incarnation: 0, at: at.parse().unwrap() }
}

/// Reads the row until a standby answers.
#[track_caller]
fn answer(reader: &Reader, floor: Position) -> StandbyRead {
    let mut read = None;
    let mut last = None;
    wait("an answer of a standby", || {
        match reader.read_standby(0, &["1"], floor) {
            Ok(answer) => read = Some(answer),
            Err(refusal) => last = Some(refusal),
        }
        read.is_some()
    });
    read.unwrap_or_else(|| panic!("{last:?}"))
}

/// Reads the row until it is refused for this reason.
#[track_caller]
fn refused(reader: &Reader, floor: Position, wanted: StandbyRefusal) {
    let mut seen = Vec::new();
    wait(&format!("{wanted:?}"), || {
        let refusal = reader.read_standby(0, &["1"], floor).err();
        if seen.last() != Some(&refusal) {
            seen.push(refusal);
        }
        refusal == Some(wanted)
    });
}

fn row(n: u32) -> Row {
    Row::Found(format!(r#"{{"id":1,"n":{n}}}"#).into_bytes())
}

#[test]
fn an_error_of_a_row_is_none_of_the_standby() {
    let primary = primary();
    primary.batch(
        "CREATE VIEW shares AS SELECT id, 100 / n AS share FROM t; \
         INSERT INTO t VALUES (2, 4); GRANT SELECT ON shares TO hotrow",
    );
    let standby = primary.standby(&[]);
    let mut config = config(&primary.url_for(ROLE, "postgres"), &["shares(id)"]);
    config.server.read_urls = vec![standby.url_for(ROLE, "postgres")];
    let reader = Reader::open(config);
    refused(&reader, log_end(&primary), StandbyRefusal::Data);
    let floor = log_end(&primary);
    assert!(reader.read_standby(0, &["2"], floor).is_ok(), "it is asked again at once");
}

#[test]
fn a_standby_answers_what_it_has_replayed() {
    let primary = primary();
    let standby = primary.standby(&[]);
    let reader = reader(&primary, &[&standby]);
    for n in 1..=20 {
        primary.batch(&format!("UPDATE t SET n = {n}"));
        let floor = log_end(&primary);
        let read = answer(&reader, floor);
        assert_eq!(read.rows, [row(n)], "everything up to the floor");
        assert!(read.seen.from >= floor.at && read.seen.end >= read.seen.from);
    }
    let floor = log_end(&primary);
    let both = reader.read_standby(0, &["7", "1"], floor).unwrap();
    assert_eq!(both.rows, [Row::Missing, row(20)]);
    // Nothing that the standby has not replayed is answered, at once or later.
    standby.batch("SELECT pg_wal_replay_pause()");
    primary.batch("UPDATE t SET n = 21");
    refused(&reader, log_end(&primary), StandbyRefusal::Behind);
    assert_eq!(answer(&reader, floor).rows, [row(20)], "an older floor is enough for others");
    standby.batch("SELECT pg_wal_replay_resume()");
    assert_eq!(answer(&reader, log_end(&primary)).rows, [row(21)]);
    let views = reader.source.standbys();
    assert!(views[0].reads_total >= 23 && views[0].trouble.is_none(), "{views:?}");
}

/// In one snapshot the replay position, asked for first, may be past what the row shows.
#[test]
fn the_isolation_of_the_role_has_no_effect() {
    let primary = primary();
    primary.batch("ALTER ROLE hotrow SET default_transaction_isolation = 'serializable'");
    let standby = primary.standby(&[]);
    let reader = reader(&primary, &[&standby]);
    // A serializable transaction cannot run on a standby at all.
    assert_eq!(answer(&reader, log_end(&primary)).rows, [row(0)]);
    let open = "SELECT DISTINCT state FROM pg_stat_activity WHERE application_name = 'hotrow'";
    // A session may be about to be used.
    wait("no transaction stays open", || standby.query(open) == "idle");
}

#[test]
fn a_promoted_standby_is_not_read() {
    let primary = primary();
    let standby = primary.standby(&[]);
    let other = primary.standby(&[]);
    let reader = reader(&primary, &[&standby]);
    let floor = log_end(&primary);
    assert_eq!(answer(&reader, floor).rows, [row(0)]);
    standby.promote();
    standby.batch("UPDATE t SET n = 99");
    refused(&reader, floor, StandbyRefusal::Promoted);
    // A standby of the promoted server has its timeline, and the same system.
    let follower = standby.standby(&[]);
    let reader = self::reader(&primary, &[&follower]);
    refused(&reader, floor, StandbyRefusal::OtherTimeline);
    let reader = self::reader(&primary, &[&standby, &other]);
    for _ in 0..10 {
        assert_eq!(answer(&reader, floor).rows, [row(0)], "the other one answers");
    }
}

#[test]
fn a_standby_that_does_not_stream_or_stops_is_not_read() {
    let mut primary = primary();
    let mut standby = primary.standby(&[]);
    let reader = reader(&primary, &[&standby]);
    let floor = log_end(&primary);
    assert_eq!(answer(&reader, floor).rows, [row(0)]);
    standby.stop(Stop::Fast);
    refused(&reader, floor, StandbyRefusal::Unreachable);
    standby.restart();
    assert_eq!(answer(&reader, floor).rows, [row(0)]);
    // It does not answer: the read ends in a fraction of the time that a read may take.
    standby.pause();
    refused(&reader, floor, StandbyRefusal::Timeout);
    standby.resume();
    assert_eq!(answer(&reader, floor).rows, [row(0)]);
    // It is asked only after it was reached once more, while its primary is away.
    primary.stop(Stop::Fast);
    refused(&reader, floor, StandbyRefusal::NotStreaming);
    primary.restart();
    assert_eq!(answer(&reader, floor).rows, [row(0)]);
}

#[test]
fn a_standby_that_cannot_be_judged_is_not_read() {
    let primary = primary();
    primary.batch("REVOKE pg_read_all_stats FROM hotrow");
    let standby = primary.standby(&[]);
    let stranger = Server::start_other(&[]);
    stranger.batch(TABLE);
    stranger.make_reader_role(&["t"]);
    stranger.batch("GRANT pg_read_all_stats TO hotrow");
    for (server, trouble) in [(&standby, "GRANT pg_read_all_stats"), (&stranger, "not a standby")] {
        let reader = reader(&primary, &[server]);
        wait(trouble, || {
            let refusal = reader.read_standby(0, &["1"], log_end(&primary)).unwrap_err();
            let is_refused = matches!(refusal, StandbyRefusal::Unreachable | StandbyRefusal::Busy);
            assert!(is_refused, "{refusal:?}");
            let views = reader.source.standbys();
            views[0].trouble.as_ref().is_some_and(|why| why.contains(trouble))
        });
    }
}

/// Children are read by the statement of the record, so what the standby proves holds for both.
#[test]
fn a_standby_answers_with_the_children_that_it_has_replayed() {
    let primary = primary();
    primary.batch(
        "CREATE TABLE c (id int PRIMARY KEY, t_id int, m int); GRANT SELECT ON c TO hotrow; \
         ALTER PUBLICATION hotrow ADD TABLE c",
    );
    let standby = primary.standby(&[]);
    let mut config = config(&primary.url_for(ROLE, "postgres"), &["t(id)"]);
    config.server.read_urls = vec![standby.url_for(ROLE, "postgres")];
    config.server.collections[0].embed = vec![EmbedConfig {
        name: "c".into(),
        table: "c".into(),
        on: "t_id".into(),
        order_by: Vec::new(),
        limit: 2,
        columns: Some(vec!["m".into()]),
    }];
    let reader = Reader::open(config);
    for (n, children) in [(1, r#"{"m":1}"#), (2, r#"{"m":1},{"m":2}"#), (3, r#"{"m":1},{"m":2}"#)] {
        primary.batch(&format!("INSERT INTO c VALUES ({n}, 1, {n})"));
        let record = format!(r#"{{"id":1,"n":0,"c":[{children}]}}"#);
        assert_eq!(answer(&reader, log_end(&primary)).rows, [Row::Found(record.into_bytes())]);
    }
}
