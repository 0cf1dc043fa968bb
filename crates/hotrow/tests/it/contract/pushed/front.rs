//! A cache in front of the instances, as docs/purging.md has it: it keeps answers that have a
//! surrogate key until they are purged. A stand-in for a CDN behind a webhook: Varnish and nginx
//! are tried in `it/purge`.
//!
//! A read after a purge is an observation. At the end each commit must have been followed by a
//! purge of its record or of the collection, and what is kept must equal the database. How soon a
//! purge comes is not judged: while things fail, one of everything is never far.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::contract::ask::{ReadRequest, provenance};
use crate::contract::board::{Board, Instance};
use crate::contract::engine::Engine;
use crate::contract::rows::{Random, Sizes};
use crate::contract::run::Trial;
use hotrow_testkit::harness::{Client, Config, SOON, await_until};
use hotrow_verify::history::{KeyState, Ns};
use hotrow_verify::observation::{Claim, Observation, Origin, Outcome, Position, Requirement};

/// Time after which each purge is repeated: longer than a fetch, the instance's time-outs included.
const REPEAT_AFTER: &str = "\"4s\"";
/// One of this many requests is refused, and sent again.
const REFUSED_ONE_IN: u64 = 5;
/// Most purges after which a fetch waits to be made; of more the oldest is not.
const UNREAD_MAX: usize = 256;
/// Wait of the cache after a fetch, and after one that was refused.
const PAUSE: Duration = Duration::from_millis(2);
const BACK_OFF: Duration = Duration::from_millis(6);

/// A purge that was accepted.
#[derive(Clone, Copy, Debug)]
struct Purged {
    instance: u16,
    /// `None`: the whole collection.
    key: Option<u32>,
    position: Option<Position>,
    received_ns: Ns,
}

/// What the receiver of purges and the cache share.
struct Shared {
    board: Arc<Board>,
    purged: Mutex<Vec<Purged>>,
    /// Keys that were purged and not fetched since.
    unread: Mutex<VecDeque<Purged>>,
    /// What is kept of each instance.
    kept: Mutex<HashMap<(u16, u32), Claim>>,
    requests: AtomicU64,
    refused: AtomicU64,
}

/// The cache.
pub(crate) struct Front {
    address: SocketAddr,
    shared: Arc<Shared>,
    fetcher: Option<JoinHandle<Vec<Observation>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panics here")
}

impl Front {
    /// Starts the cache, which fetches until the board stops readers.
    pub(crate) fn start(id: u16, board: &Arc<Board>, keys: u32, sizes: Sizes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            board: Arc::clone(board),
            purged: Mutex::default(),
            unread: Mutex::default(),
            kept: Mutex::default(),
            requests: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        });
        let own = Arc::clone(&shared);
        // It ends with the process: purges come as long as an instance runs.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let own = Arc::clone(&own);
                std::thread::spawn(move || own.receive(stream));
            }
        });
        let fetcher = Fetcher {
            id,
            keys,
            sizes,
            shared: Arc::clone(&shared),
            clients: HashMap::new(),
            random: Random(0xf407),
            seen: Vec::new(),
        };
        let fetcher = Some(std::thread::spawn(move || fetcher.run()));
        Self { address, shared, fetcher }
    }

    /// Has an instance of this id purge the cache.
    pub(crate) fn purged_by(&self, id: u16, config: Config) -> Config {
        config
            .set("collections.items.surrogate_keys", "true")
            .set("collections.items.cache_control", "\"max-age=0, s-maxage=3600\"")
            .set("purge.repeat_after", REPEAT_AFTER)
            .set("purge.targets.front.kind", "\"webhook\"")
            .set("purge.targets.front.url", &format!("\"http://{}/{id}\"", self.address))
    }

    /// Waits for the end of the fetches, and returns their observations.
    pub(crate) fn stop(&mut self) -> Vec<Observation> {
        let fetcher = self.fetcher.take().expect("stopped once");
        fetcher.join().expect("a cache that did not fail")
    }

    /// Awaits all purges. Then checks that every commit was purged, and that what is kept equals
    /// the database; returns counts.
    pub(super) fn judge<E: Engine>(&self, run: &Trial<E>) -> Value {
        for server in &run.servers {
            await_until("all purges", SOON, || {
                server.metrics().sum("hotrow_purge_queue_entries", &[]) == 0.0
            });
        }
        let purged = lock(&self.shared.purged);
        let (mut by_key, mut by_all) = (0, 0);
        for instance in 0..run.servers.len() as u16 {
            let own: Vec<Purged> =
                purged.iter().filter(|purge| purge.instance == instance).copied().collect();
            let commits = purged_commits(run, &own);
            let missing = &commits.missing;
            let first = missing.first();
            assert!(
                first.is_none(),
                "instance {instance} has not purged {} commits, as {first:?}",
                missing.len()
            );
            by_key += commits.by_key;
            by_all += commits.by_all;
        }
        let rows = E::rows(&run.database);
        let kept = lock(&self.shared.kept);
        for ((instance, key), seen) in kept.iter() {
            let expected = rows.get(key).map_or(Claim::Absent, |version| Claim::Version(*version));
            assert_eq!(*seen, expected, "{key} of instance {instance}, kept in front");
        }
        json!({
            "purges_of_keys": purged.iter().filter(|purge| purge.key.is_some()).count(),
            "purges_of_all": purged.iter().filter(|purge| purge.key.is_none()).count(),
            "requests": self.shared.requests.load(Ordering::Relaxed),
            "refused": self.shared.refused.load(Ordering::Relaxed),
            "commits_purged_by_key": by_key,
            "commits_purged_by_all": by_all,
            "kept": kept.len(),
        })
    }
}

/// Commits that an instance has purged.
#[derive(Default)]
struct PurgedCommits {
    /// First by a purge of their record.
    by_key: u64,
    /// First by one of the whole collection, as after a loss.
    by_all: u64,
    /// By none.
    missing: Vec<(u32, KeyState)>,
}

/// Looks for the first purge after each commit that concerns it.
fn purged_commits<E: Engine>(run: &Trial<E>, purged: &[Purged]) -> PurgedCommits {
    let mut of_keys: BTreeMap<u32, Vec<(Option<u64>, Ns)>> = BTreeMap::new();
    let mut of_all = Vec::new();
    for purge in purged {
        match purge.key {
            Some(key) => {
                let at = purge.position.map(|position| position.at);
                of_keys.entry(key).or_default().push((at, purge.received_ns));
            }
            None => of_all.push(purge.received_ns),
        }
    }
    of_all.sort_unstable();
    let mut commits = PurgedCommits::default();
    for (key, history) in run.histories.iter().enumerate() {
        let key = key as u32;
        let of_key = of_keys.get(&key).map_or(&[][..], Vec::as_slice);
        for state in history.iter().skip(1) {
            let (Some(log), Some(sent_ns)) = (state.log, state.commit_sent_ns) else { continue };
            // One that the admin API asked for has no position, and takes away that of a change
            // that waits with it.
            let reflects = |(at, received_ns): &&(Option<u64>, Ns)| {
                at.map_or(sent_ns <= *received_ns, |at| log.from <= at)
            };
            let by_key = of_key.iter().filter(reflects).map(|(_, received_ns)| *received_ns).min();
            let later = of_all.partition_point(|received_ns| *received_ns < sent_ns);
            match (by_key, of_all.get(later)) {
                (Some(by_key), by_all) if by_all.is_none_or(|by_all| by_key < *by_all) => {
                    commits.by_key += 1;
                }
                (_, Some(_)) => commits.by_all += 1,
                (_, None) => commits.missing.push((key, *state)),
            }
        }
    }
    commits
}

impl Shared {
    /// Answers the requests of a connection.
    fn receive(&self, stream: TcpStream) {
        let mut output = stream.try_clone().expect("a socket");
        let mut input = BufReader::new(stream);
        // It ends with the instance.
        while let Some((instance, body)) = request(&mut input) {
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            let is_refused = number % REFUSED_ONE_IN == REFUSED_ONE_IN - 1;
            if is_refused {
                self.refused.fetch_add(1, Ordering::Relaxed);
            } else {
                self.purge(instance, &body);
            }
            let status = if is_refused { "503 Busy" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            if output.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn purge(&self, instance: u16, body: &Value) {
        let purges = body["purges"].as_array().expect("a list of purges");
        for purge in purges {
            let text = |name: &str| purge[name].as_str();
            assert_eq!(text("collection"), Some("items"), "{purge}");
            let key: Option<u32> = text("key").map(|key| key.parse().expect("a key of the run"));
            let position = text("position").map(|at| Position::parse(at).expect("a position"));
            let received_ns = self.board.now();
            let purged = Purged { instance, key, position, received_ns };
            let mut kept = lock(&self.kept);
            match key {
                Some(key) => _ = kept.remove(&(instance, key)),
                None => kept.retain(|(of, _), _| *of != instance),
            }
            drop(kept);
            lock(&self.purged).push(purged);
            let mut unread = lock(&self.unread);
            unread.extend(key.is_some().then_some(purged));
            if unread.len() > UNREAD_MAX {
                unread.pop_front();
            }
        }
    }
}

/// Reads a request, and returns the instance that its path names and its body.
fn request(input: &mut impl BufRead) -> Option<(u16, Value)> {
    let mut line = String::new();
    input.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1).expect("a request");
    let instance = path.trim_start_matches('/').parse().expect("the number of an instance");
    let mut length = 0;
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim_end().parse().expect("a number");
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    Some((instance, serde_json::from_slice(&body).expect("JSON")))
}

/// The part of the cache that fetches.
struct Fetcher {
    id: u16,
    keys: u32,
    sizes: Sizes,
    shared: Arc<Shared>,
    clients: HashMap<u16, Client>,
    random: Random,
    seen: Vec<Observation>,
}

impl Fetcher {
    fn run(mut self) -> Vec<Observation> {
        while !self.shared.board.readers_stopped() {
            let purged = lock(&self.shared.unread).pop_front();
            let instances = self.shared.board.instances();
            if instances.is_empty() {
                std::thread::sleep(BACK_OFF);
                continue;
            }
            let (instance, key, requirement) = match purged {
                Some(Purged { instance, key: Some(key), position: Some(position), .. }) => {
                    let of = instances.iter().find(|own| own.id == instance);
                    let requirement = Requirement::Followed { position, is_sent: false };
                    (*of.unwrap_or(&instances[0]), key, requirement)
                }
                _ => {
                    let key = self.random.skewed(u64::from(self.keys)) as u32;
                    (self.random.one_of(&instances), key, Requirement::Any)
                }
            };
            let is_kept = lock(&self.shared.kept).contains_key(&(instance.id, key));
            let pause = if is_kept { PAUSE } else { self.fetch(instance, key, requirement) };
            std::thread::sleep(pause);
        }
        self.seen
    }

    /// Fetches a record, and keeps it if a purge finds it. Returns how long to wait.
    fn fetch(&mut self, instance: Instance, key: u32, requirement: Requirement) -> Duration {
        let client =
            self.clients.entry(instance.id).or_insert_with(|| Client::connect(instance.data));
        let request = ReadRequest::plain(key);
        let sent_ns = self.shared.board.now();
        client.send(request.bytes());
        let answer = client.try_answer("GET", SOON).expect("an answer");
        let received_ns = self.shared.board.now();
        let provenance = provenance(&answer);
        let (_, seen) = request.read(&answer, self.sizes).swap_remove(0);
        let has_key = answer.header("surrogate-key").is_some();
        let is_refused = matches!(seen, Claim::Refused(_));
        if has_key {
            assert!(
                provenance.outcome != Outcome::Stale && !is_refused,
                "kept in front: {answer:?}"
            );
            lock(&self.shared.kept).insert((instance.id, key), seen.clone());
        }
        self.shared.board.reads.fetch_add(1, Ordering::Relaxed);
        self.seen.push(Observation {
            key,
            reader: self.id,
            origin: Origin::Instance(instance.id),
            sent_ns,
            received_ns,
            form: request.form(),
            requirement,
            seen,
            outcome: provenance.outcome,
            age_s: Some(provenance.age_s),
            position: provenance.position,
        });
        if is_refused { BACK_OFF } else { PAUSE }
    }
}
