use super::harness::*;
use std::path::Path;
use std::sync::mpsc;

use crate::config::Tuning;
use crate::config::{Config, Watch};
use crate::file::beside;
use crate::{Hooks, OpenError, open};
use hotrow_source::{LossCause, Row, SourceError};
use hotrow_supervisor::Supervisor;
use hotrow_types::version::Position;

const T: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'old');";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Creates another database beside the first, in one file, ready to be moved over it.
fn other(db: &Db, sql: &str) -> std::path::PathBuf {
    let path = db.dir.path().join("other.db");
    let writer = writer(&path);
    writer.pragma_update(None, "journal_mode", "WAL").unwrap();
    writer.execute_batch(sql).unwrap();
    path
}

fn move_over(db: &Db, new: &Path) {
    let p = text(&db.path);
    program("sh", &["-c", &format!("mv {} {p} && rm -f {p}-wal {p}-shm", text(new))]);
}

#[track_caller]
fn lost(engine: &Engine, from: usize, cause: &LossCause) {
    engine
        .sink
        .wait("a loss", |events| events[from..].contains(&Event::Loss(*cause)).then_some(()));
}

/// Waits until the feed has noticed another file. A move takes steps, and a poll may fall between
/// two of them.
#[track_caller]
fn replaced(engine: &Engine, from: usize) {
    engine.sink.wait("a loss", |events| {
        let seen = |cause| events[from..].contains(&Event::Loss(cause));
        (seen(LossCause::OtherDatabase) || seen(LossCause::Unavailable)).then_some(())
    });
}

/// Reads the row as soon as the database can be read again.
fn row_again(engine: &Engine) -> String {
    let until = std::time::Instant::now() + DEADLINE;
    // Only a successful read counts: while a file is moved in steps, the database may become
    // unavailable again.
    loop {
        match engine.read(0, &["1"]) {
            Ok(set) => {
                let Some(Row::Found(json)) = set.rows.into_iter().next() else {
                    panic!("there is no such row")
                };
                return String::from_utf8(json).unwrap();
            }
            Err(e) => assert!(std::time::Instant::now() < until, "{e}"),
        }
        std::thread::yield_now();
    }
}

#[track_caller]
fn started(engine: &Engine, from: usize) -> Option<Position> {
    engine.sink.wait("a start", |events| {
        events[from..]
            .iter()
            .rev()
            .find_map(|e| if let Event::Started(p) = e { Some(*p) } else { None })
    })
}

fn unavailable(engine: &Engine) -> String {
    match engine.read(0, &["1"]) {
        Err(SourceError::Unavailable { detail }) => detail,
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_file_under_the_name_is_noticed_and_read() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    assert_eq!(engine.row(0, "1").unwrap(), r#"{"id":1,"a":"old"}"#);
    let before = engine.settle().unwrap();
    let new = other(&db, &T.replace("old", "new"));
    let from = engine.sink.len();
    move_over(&db, &new);
    replaced(&engine, from);
    let after = started(&engine, from).unwrap();
    assert_ne!(after.incarnation, before.incarnation);
    assert_eq!(row_again(&engine), r#"{"id":1,"a":"new"}"#);
    let writer = writer(&db.path);
    engine.during(|| writer.execute_batch("UPDATE t SET a = 'newer'").unwrap()).only(&["0:1"]);
}

#[test]
fn a_restored_copy_gets_positions_of_its_own() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    db.run("UPDATE t SET a = 'b'");
    let before = engine.settle().unwrap();
    let copy = db.dir.path().join("copy.db");
    db.run(&format!("VACUUM INTO '{}'", copy.display()));
    writer(&copy).pragma_update(None, "journal_mode", "WAL").unwrap();
    assert_eq!(
        writer(&copy)
            .query_row("SELECT log_id FROM _hotrow_meta", [], |r| r.get::<_, i64>(0))
            .unwrap()
            .cast_unsigned(),
        before.incarnation
    );
    let from = engine.sink.len();
    move_over(&db, &copy);
    replaced(&engine, from);
    assert_ne!(started(&engine, from).unwrap().incarnation, before.incarnation);
}

#[test]
fn a_log_left_behind_by_the_old_file_is_not_read_into_the_new_one() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    engine.settle();
    let new = other(&db, &T.replace("old", "new"));
    let from = engine.sink.len();
    // An incomplete move: the -wal of the old file stays.
    program("mv", &[text(&new), text(&db.path)]);
    lost(&engine, from, &LossCause::OtherDatabase);
    let until = std::time::Instant::now() + DEADLINE;
    while !unavailable(&engine).contains("-wal still belongs to the database that was replaced") {
        assert!(std::time::Instant::now() < until);
    }
    let p = text(&db.path);
    program("rm", &["-f", &format!("{p}-wal"), &format!("{p}-shm")]);
    started(&engine, from);
    assert_eq!(row_again(&engine), r#"{"id":1,"a":"new"}"#);
}

#[test]
fn a_file_moved_away_and_back_with_its_log_is_served_again() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    engine.settle();
    // The commit is in the log alone.
    db.run("UPDATE t SET a = 'logged'");
    engine.settle();
    let from = engine.sink.len();
    let p = text(&db.path);
    let each = |from: &str, to: &str| {
        ["", "-wal", "-shm"]
            .iter()
            .for_each(|end| program("mv", &[&format!("{from}{end}"), &format!("{to}{end}")]));
    };
    each(p, &format!("{p}.away"));
    lost(&engine, from, &LossCause::Unavailable);
    each(&format!("{p}.away"), p);
    started(&engine, from);
    assert_eq!(engine.row(0, "1").unwrap(), r#"{"id":1,"a":"logged"}"#);
}

#[test]
fn a_removed_file_is_not_created_and_may_come_back() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    engine.settle();
    let from = engine.sink.len();
    let p = text(&db.path);
    program("rm", &["-f", p, &format!("{p}-wal"), &format!("{p}-shm")]);
    lost(&engine, from, &LossCause::Unavailable);
    unavailable(&engine);
    assert!(!db.path.exists());
    let new = other(&db, &T.replace("old", "new"));
    move_over(&db, &new);
    started(&engine, from);
    assert_eq!(row_again(&engine), r#"{"id":1,"a":"new"}"#);
}

#[test]
fn a_damaged_file_is_not_served() {
    for damage in [
        "truncate -s 0 F",
        "truncate -s 4096 F",
        "dd if=/dev/urandom of=F bs=4096 count=1 conv=notrunc",
        "echo hello > F",
    ] {
        let db = Db::new(T);
        // Everything in the main file, and more than one page of it.
        db.run("PRAGMA wal_checkpoint(TRUNCATE)");
        let engine = db.start(&["t(id)"]);
        db.run("PRAGMA wal_checkpoint(TRUNCATE)");
        engine.settle();
        let from = engine.sink.len();
        program("sh", &["-c", &damage.replace('F', text(&db.path))]);
        lost(&engine, from, &LossCause::Unavailable);
        unavailable(&engine);
        let new = other(&db, &T.replace("old", "new"));
        move_over(&db, &new);
        started(&engine, from);
        assert_eq!(row_again(&engine), r#"{"id":1,"a":"new"}"#, "{damage}");
    }
}

#[test]
fn a_removed_log_file_is_noticed() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    // A second reader with a connection of its own, idle at the time of the removal.
    std::thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(|| engine.row(0, "1"))));
    db.run("PRAGMA wal_checkpoint(TRUNCATE)");
    let before = engine.settle().unwrap();
    let Db { dir: _dir, path, writer } = db;
    drop(writer);
    let from = engine.sink.len();
    // A writer now creates a new log, invisible to connections that have the old one open.
    let p = text(&path);
    program("rm", &["-f", &format!("{p}-wal"), &format!("{p}-shm")]);
    lost(&engine, from, &LossCause::Unavailable);
    // Changes in the old log alone are lost, so its positions must not continue.
    assert_ne!(started(&engine, from).unwrap().incarnation, before.incarnation);
    for n in 0..3 {
        program("sqlite3", &[p, &format!("UPDATE t SET a = {n}")]);
        engine.settle();
        assert_eq!(engine.row(0, "1").unwrap(), format!("{{\"id\":1,\"a\":\"{n}\"}}"));
    }
}

#[test]
fn a_link_that_points_elsewhere_is_another_database() {
    let db = Db::new(T);
    let new = other(&db, &T.replace("old", "new"));
    let link = db.dir.path().join("link");
    std::os::unix::fs::symlink(&db.path, &link).unwrap();
    let config = Config { path: link.clone(), ..db.config(vec![spec("t(id)")]) };
    let engine = Engine::start(config, Tuning::default());
    engine.during(|| db.run("UPDATE t SET a = 'b'")).only(&["0:1"]);
    let from = engine.sink.len();
    program("ln", &["-sfn", text(&new), text(&link)]);
    lost(&engine, from, &LossCause::OtherDatabase);
    started(&engine, from);
    assert_eq!(row_again(&engine), r#"{"id":1,"a":"new"}"#);
    assert!(beside(&new, "-wal").exists());
}

#[test]
fn an_idle_reader_closes_a_replaced_file() {
    let db = Db::new(T);
    let engine = db.start(&["t(id)"]);
    for _ in 0..4 {
        assert!(engine.row(0, "1").is_some());
    }
    let new = other(&db, T);
    let from = engine.sink.len();
    move_over(&db, &new);
    replaced(&engine, from);
    started(&engine, from);
    engine.settle();
    let open_deleted_logs = || {
        let fds = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|e| std::fs::read_link(e.ok()?.path()).ok());
        fds.filter(|l| {
            l.to_string_lossy().starts_with(&format!("{}-wal (deleted)", text(&db.path)))
        })
        .count()
    };
    // The writer of this test keeps one open.
    let until = std::time::Instant::now() + DEADLINE;
    while open_deleted_logs() > 1 {
        assert!(std::time::Instant::now() < until, "{}", open_deleted_logs());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Runs `act` without the rights of root, which ignore every file mode. Threads that it starts
/// inherit that.
#[allow(unsafe_code, reason = "the test runs as root in containers")]
fn without_root_rights<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: setfsuid changes the file rights of this thread alone and cannot fail
            // harmfully.
            unsafe { libc::setfsuid(65_534) };
            act()
        });
        thread.join().unwrap()
    })
}

#[test]
fn permissions_are_named_and_reading_alone_is_enough_without_triggers() {
    let db = Db::new(T);
    let mode = |file: &str, dir: &str| {
        program("chmod", &[file, text(&db.path)]);
        program("chmod", &[dir, text(db.dir.path())]);
    };
    let try_open = |watch| {
        let config = Config { watch, ..db.config(vec![spec("t(id)")]) };
        without_root_rights(|| open(config, Hooks::default(), &Supervisor::default()).map(drop))
    };
    db.writer.pragma_update(None, "journal_mode", "DELETE").unwrap();
    mode("000", "755");
    assert!(matches!(try_open(Watch::None), Err(OpenError::Permission { .. })));
    mode("444", "000");
    assert!(matches!(try_open(Watch::None), Err(OpenError::Permission { .. })));
    mode("444", "555");
    let config = Config { watch: Watch::None, ..db.config(vec![spec("t(id)")]) };
    let (send, receive) = mpsc::channel();
    without_root_rights(|| send.send(Engine::start(config, Tuning::default())).unwrap());
    let engine = receive.recv().unwrap();
    assert_eq!(engine.row(0, "1").unwrap(), r#"{"id":1,"a":"old"}"#);
    assert_eq!(engine.during(|| db.run("UPDATE t SET a = 'b'")).flushes.len(), 1);
    assert_eq!(engine.row(0, "1").unwrap(), r#"{"id":1,"a":"b"}"#);
    drop(engine);
    mode("644", "755");
    let db = Db::new(T);
    program("chmod", &["444", text(&db.path)]);
    program("chmod", &["555", text(db.dir.path())]);
    let config = db.config(vec![spec("t(id)")]);
    let refused =
        without_root_rights(|| open(config, Hooks::default(), &Supervisor::default()).map(drop))
            .unwrap_err();
    assert!(matches!(refused, OpenError::ReadOnly { .. }), "{refused}");
    program("chmod", &["755", text(db.dir.path())]);
}
