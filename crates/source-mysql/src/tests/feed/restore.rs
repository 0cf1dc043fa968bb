//! A data folder restored to an older state has another log, although the server's name is the
//! same.

use super::*;

#[test]
fn a_restored_copy_of_the_data_has_other_positions() {
    let mut server = Server::start(&[]);
    server.batch("CREATE TABLE p (id INT PRIMARY KEY, n INT); INSERT INTO p VALUES (1, 0)");
    server.stop(Stop::Fast);
    server.back_up();
    server.restart();
    let feed = Feed::start(&server, &["p(id)"]);
    server.batch("UPDATE p SET n = 1");
    let before = feed.settle();
    assert_eq!(before.incarnation, server.incarnation());
    let from = feed.sink.len();
    server.await_next_second();
    server.stop(Stop::Fast);
    server.restore();
    server.restart();
    feed.sink.wait("a start", |events| {
        events[from..].iter().any(|e| matches!(e, Event::Started(_))).then_some(())
    });
    let after = feed.settle();
    assert_ne!(after.incarnation, before.incarnation);
    assert_eq!(after.incarnation, server.incarnation());
    // An instance that starts now has the same incarnation as one that ran all the time.
    assert_eq!(Feed::start(&server, &["p(id)"]).settle().incarnation, after.incarnation);
}
