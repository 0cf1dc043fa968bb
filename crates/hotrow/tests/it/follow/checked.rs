//! A writer, and a follower that checks each commit: that it is seen, in order, and that a read
//! with the position of its event shows it, at two instances and through returns at any event.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::{ALL, ITEMS, follow, followed, version_at, with_items};
use crate::alias::Users;
use hotrow_testkit::harness::{EventStream, SentEvent, Server};

const COMMITS: usize = 150;

/// Keys of each commit, in order: commit `n` sets their version to `n + 1`.
type Written = Mutex<Vec<BTreeSet<u32>>>;

/// What a follower has seen.
struct Checker<'a> {
    written: &'a Written,
    servers: &'a [Server; 2],
    /// Commits that were seen.
    seen: usize,
    /// Keys since the last id, and the versions read for them.
    group: Vec<(u32, u64)>,
    last_id: Option<String>,
    events: usize,
}

impl Checker<'_> {
    /// Takes an event. Reads the record at one of the instances.
    fn take(&mut self, event: SentEvent) {
        self.events += 1;
        let (key, _) = event.change();
        let position = event.data["position"].as_str().expect("a position");
        let version = version_at(&self.servers[self.events % 2], key, position);
        self.group.push((key.parse().expect("a key"), version));
        if event.id.is_some() {
            self.last_id = event.id;
            self.complete();
        }
    }

    /// Checks a group: it has the next commits in full. Another instance may divide the log
    /// otherwise, so that earlier ones may come again with them.
    fn complete(&mut self) {
        let group = std::mem::take(&mut self.group);
        let keys: BTreeSet<u32> = group.iter().map(|(key, _)| *key).collect();
        let written = self.written.lock().expect("no panic");
        while written.get(self.seen).is_some_and(|commit| commit.is_subset(&keys)) {
            self.seen += 1;
        }
        for (key, version) in group {
            let own = written[..self.seen].iter().rposition(|commit| commit.contains(&key));
            let own = own.expect("a commit with this key precedes its event");
            assert!(
                version > own as u64,
                "record {key}: version {version}, and commit {own} was pushed"
            );
        }
    }
}

pub(crate) fn every_commit_is_seen_in_order_and_can_be_read<U: Users>() {
    let database = with_items::<U>();
    let servers = [0, 1].map(|_| Server::start(&followed(database.service())));
    let written = Written::default();
    let first = follow(&servers[0]);
    follow(&servers[1]);
    let (events, returns) = std::thread::scope(|threads| {
        let follower = threads.spawn(|| check(&servers, &written, first));
        let mut random = 7_u64;
        for n in 0..COMMITS {
            let mut keys = BTreeSet::new();
            for _ in 0..=n % 4 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                keys.insert(1 + (random >> 33) as u32 % ITEMS);
            }
            let list: Vec<String> = keys.iter().map(u32::to_string).collect();
            written.lock().expect("no panic").push(keys);
            database.execute(&format!(
                "UPDATE items SET v = {} WHERE id IN ({})",
                n + 1,
                list.join(", ")
            ));
        }
        follower.join().expect("no panic")
    });
    assert!(returns >= 10 && events >= COMMITS, "{events} events, {returns} returns");
}

/// Follows until all commits were seen. Returns the numbers of events and of returns.
fn check(servers: &[Server; 2], written: &Written, first: EventStream) -> (usize, usize) {
    let mut checker = Checker {
        written,
        servers,
        seen: 0,
        group: Vec::new(),
        last_id: None,
        events: 0,
    };
    let mut stream = first;
    let mut returns = 0;
    while checker.seen < COMMITS {
        let event = stream.next_event().expect("an event");
        match event.name.as_str() {
            "change" => checker.take(event),
            "heartbeat" => checker.last_id = event.id.or(checker.last_id),
            other => panic!("{other}: {event:?}"),
        }
        if checker.events % 7 == 6 && checker.last_id.is_some() {
            // In the middle of a commit, or between two, and to the other instance.
            checker.events += 1;
            checker.group.clear();
            returns += 1;
            let id = checker.last_id.as_deref().unwrap_or_default();
            let fields = format!("Last-Event-ID: {id}\r\n");
            stream = EventStream::open(servers[returns % 2].data, ALL, &fields);
        }
    }
    (checker.events, returns)
}
