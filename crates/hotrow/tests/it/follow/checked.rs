//! A writer, and a follower that checks each commit: that it is seen, in order, and that a read
//! with the position of its event shows it, at two instances and through returns at any event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{ALL, ITEMS, follow, followed, version_at, with_items};
use crate::alias::Users;
use hotrow_testkit::harness::{EventStream, SOON, SentEvent, Server, await_until};

const COMMITS: usize = 150;
/// Most commits that the follower has not seen when the next one begins.
const AHEAD_MAX: usize = 4;

/// Key of the record that commit 0 adds; each commit adds the next one.
const FIRST_ADDED: usize = 1_000;

/// What a follower has seen.
struct Checker<'a> {
    /// Keys of each commit, in order: commit `n` sets their version to `n + 1`.
    written: &'a [BTreeSet<usize>],
    servers: &'a [Server; 2],
    /// Commits that were seen.
    seen: usize,
    /// Keys since the last id, and the versions read for them.
    group: BTreeMap<usize, u64>,
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
        self.group.insert(key.parse().expect("a key"), version);
        if event.id.is_some() {
            self.last_id = event.id;
            self.complete();
        }
    }

    /// Checks a group: it has whole commits, and continues where the one before it ended. Another
    /// instance may divide the log otherwise, so that earlier commits may come again with it.
    fn complete(&mut self) {
        let group = std::mem::take(&mut self.group);
        let commits = group.keys().filter_map(|key| key.checked_sub(FIRST_ADDED));
        for commit in commits.filter(|commit| *commit < self.written.len()) {
            assert!(commit <= self.seen, "commit {commit} after {} others", self.seen);
            self.seen = self.seen.max(commit + 1);
            for key in &self.written[commit] {
                let version = group.get(key);
                let version = version.unwrap_or_else(|| panic!("{key} of {commit} is missing"));
                assert!(*version > commit as u64, "{key} has version {version} after {commit}");
            }
        }
    }
}

/// Returns the keys that each commit changes, with the one that it adds.
fn plan() -> Vec<BTreeSet<usize>> {
    let mut random = 7_u64;
    let keys = |n: usize| {
        let mut keys = BTreeSet::from([FIRST_ADDED + n]);
        for _ in 0..=n % 4 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            keys.insert(1 + (random >> 33) as usize % ITEMS as usize);
        }
        keys
    };
    (0..COMMITS).map(keys).collect()
}

pub(crate) fn every_commit_is_seen_in_order_and_can_be_read<U: Users>() {
    let database = with_items::<U>();
    let servers = [0, 1].map(|_| Server::start(&followed(database.service())));
    let written = plan();
    let first = follow(&servers[0]);
    follow(&servers[1]);
    let seen = AtomicUsize::new(0);
    let (events, returns) = std::thread::scope(|threads| {
        let follower = threads.spawn(|| check(&servers, (&written, &seen), first));
        for (n, keys) in written.iter().enumerate() {
            let list: Vec<String> = keys.iter().map(usize::to_string).collect();
            let (version, added) = (n + 1, FIRST_ADDED + n);
            database.execute(&format!(
                "BEGIN; UPDATE items SET v = {version} WHERE id IN ({}); \
                 INSERT INTO items VALUES ({added}, {version}); COMMIT",
                list.join(", ")
            ));
            // So that the follower gets them in many parts, also from a feed that polls.
            await_until("the follower", SOON, || {
                follower.is_finished() || seen.load(Ordering::Relaxed) + AHEAD_MAX > n
            });
        }
        follower.join().expect("no panic")
    });
    assert!(returns >= 10 && events >= COMMITS, "{events} events, {returns} returns");
}

/// Follows until all commits were seen. Returns the numbers of events and of returns.
fn check(
    servers: &[Server; 2],
    (written, seen): (&[BTreeSet<usize>], &AtomicUsize),
    first: EventStream,
) -> (usize, usize) {
    let group = BTreeMap::new();
    let mut checker = Checker { written, servers, seen: 0, group, last_id: None, events: 0 };
    let mut stream = first;
    let mut returns = 0;
    let mut returned_with = None;
    while checker.seen < written.len() {
        let event = stream.next_event().expect("an event");
        match event.name.as_str() {
            "change" => checker.take(event),
            "heartbeat" => checker.last_id = event.id.or(checker.last_id),
            other => panic!("{other}: {event:?}"),
        }
        seen.store(checker.seen, Ordering::Relaxed);
        // In the middle of a commit, or between two, and to the other instance. Only once with
        // each id: a client that leaves within each commit gets nowhere.
        if checker.events % 3 == 2 && checker.last_id != returned_with {
            returned_with.clone_from(&checker.last_id);
            checker.group.clear();
            returns += 1;
            let id = checker.last_id.as_deref().unwrap_or_default();
            let fields = format!("Last-Event-ID: {id}\r\n");
            stream = EventStream::open(servers[returns % 2].data, ALL, &fields);
        }
    }
    (checker.events, returns)
}
