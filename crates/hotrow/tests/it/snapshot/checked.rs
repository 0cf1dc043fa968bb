//! Writers and readers at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{BODY, PARTS, change, number_of, serve, ways, with_parts};
use crate::alias::Users;

/// Transactions of the writer.
const CHANGES: u32 = 150;

/// One writer changes all records of both collections in each transaction; no snapshot shows a part
/// of one, and no later one an older number.
pub(super) fn no_snapshot_is_torn_beside_writers<U: Users>() {
    let database = with_parts(U::shared());
    let server = serve(&database);
    let is_over = AtomicBool::new(false);
    let answers = thread::scope(|scope| {
        let readers = [0, 1].map(|of_both| {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || {
                let mut client = server.client();
                let mut last = 0;
                let mut answers = 0;
                while !is_over.load(Ordering::Relaxed) || last < CHANGES {
                    let answer = match of_both {
                        0 => client.get(PARTS),
                        _ => client.post("/_snapshot", BODY),
                    };
                    let number = number_of(&answer);
                    assert!(number >= last, "{number} after {last}");
                    last = number;
                    answers += 1;
                }
                answers
            })
        });
        for n in 1..=CHANGES {
            database.execute(&change(n));
        }
        is_over.store(true, Ordering::Relaxed);
        readers.map(|reader| reader.join().expect("no failure"))
    });
    let counted: f64 =
        ["memory", "awaited", "reread", "transaction"].map(|way| ways(&server, way)).iter().sum();
    assert_eq!(counted, f64::from(answers[0] + answers[1]));
}
