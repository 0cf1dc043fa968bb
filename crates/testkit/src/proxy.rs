//! TCP proxy between the service and PostgreSQL, with faults injected by a test while traffic
//! flows. It delays, holds, cuts and refuses, for each class of connection and each direction
//! separately. For other servers all connections have one class.
//!
//! One thread moves all bytes. Its buffer per connection is bounded, so a held direction causes
//! back-pressure like a full network. A change is in effect when the call that makes it returns.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

mod link;
mod mover;

/// Time limit of a change.
const PATIENCE: Duration = Duration::from_secs(15);

/// Purpose of a connection, by its startup message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Queries for records.
    Readers,
    /// The feed's own SQL: probes, snapshots, catalogue.
    FeedSql,
    /// The stream of changes.
    Replication,
}

/// All classes.
pub const CLASSES: [Class; 3] = [Class::Readers, Class::FeedSql, Class::Replication];
/// The classes of the feed.
pub const FEED: [Class; 2] = [Class::FeedSql, Class::Replication];

/// Direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the service.
    ToServer,
    /// From PostgreSQL.
    ToService,
}

/// Both directions.
pub const BOTH: [Direction; 2] = [Direction::ToServer, Direction::ToService];

/// A running proxy; all its connections are cut when it is dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the test and the proxy's thread.
struct Shared {
    control: Mutex<Control>,
    obeyed: Condvar,
}

#[derive(Clone, Copy, Debug)]
struct Control {
    /// Number of changes made; the thread copies it after it has applied them.
    wanted: u64,
    done: u64,
    target: u16,
    /// Class of every connection; `None`: its startup message selects it.
    class: Option<Class>,
    directions: [[Conduct; 2]; 3],
    refused: [bool; 3],
    /// Connections to cut now.
    cut: [bool; 3],
    stop: bool,
    /// Open connections.
    open: [u64; 3],
    /// Connections accepted since the start.
    taken: [u64; 3],
    /// Bytes delivered since the start.
    bytes: [[u64; 2]; 3],
    /// Bytes that are delayed or held.
    waiting: [[u64; 2]; 3],
    /// Longest time for which the thread did not run although something was due.
    stalled: Duration,
}

/// Faults of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Conduct {
    delay: Duration,
    held: bool,
}

impl Proxy {
    /// Starts a proxy on a free port that leads to that port of PostgreSQL on 127.0.0.1.
    pub fn start(target: u16) -> Self {
        Self::of(target, None)
    }

    /// Like [`Self::start`], for any other server; all connections have this class.
    pub fn plain(target: u16, class: Class) -> Self {
        Self::of(target, Some(class))
    }

    fn of(target: u16, class: Option<Class>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let (wake, woken) = UnixStream::pair().expect("a pair");
        let control = Control {
            wanted: 0,
            done: 0,
            target,
            class,
            directions: Default::default(),
            refused: [false; 3],
            cut: [false; 3],
            stop: false,
            open: [0; 3],
            taken: [0; 3],
            bytes: [[0; 2]; 3],
            waiting: [[0; 2]; 3],
            stalled: Duration::ZERO,
        };
        let shared = Arc::new(Shared { control: Mutex::new(control), obeyed: Condvar::new() });
        let moving = shared.clone();
        let thread = std::thread::spawn(move || mover::run(&moving, &listener, &woken));
        Self { port, shared, wake, thread: Some(thread) }
    }

    /// Returns the port of the proxy on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the user's connection string through the proxy, for the database `postgres`.
    pub fn url_for(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/postgres", self.port)
    }

    /// Delays bytes by this time, in order, including those in transit.
    #[track_caller]
    pub fn delay(&self, classes: &[Class], directions: &[Direction], delay: Duration) {
        self.conduct(classes, directions, |conduct| conduct.delay = delay);
    }

    /// Stops all delivery without closing: neither bytes nor the end of a connection pass.
    #[track_caller]
    pub fn hold(&self, classes: &[Class], directions: &[Direction]) {
        self.conduct(classes, directions, |conduct| conduct.held = true);
    }

    /// Ends [`Self::hold`]; the held bytes are delivered.
    #[track_caller]
    pub fn release(&self, classes: &[Class], directions: &[Direction]) {
        self.conduct(classes, directions, |conduct| conduct.held = false);
    }

    /// Resets the open connections at both ends; new ones are accepted.
    #[track_caller]
    pub fn cut(&self, classes: &[Class]) {
        self.change(|control| classes.iter().for_each(|class| control.cut[*class as usize] = true));
    }

    /// Resets new connections of these classes as soon as their startup message has arrived.
    #[track_caller]
    pub fn refuse(&self, classes: &[Class], refused: bool) {
        self.change(|control| {
            classes.iter().for_each(|class| control.refused[*class as usize] = refused)
        });
    }

    /// Connects new connections to this port.
    #[track_caller]
    pub fn set_target(&self, target: u16) {
        self.change(|control| control.target = target);
    }

    /// Ends all faults.
    #[track_caller]
    pub fn clear_faults(&self) {
        self.change(|control| (control.directions, control.refused) = Default::default());
    }

    /// Returns the number of open connections.
    pub fn open(&self, class: Class) -> u64 {
        self.control().open[class as usize]
    }

    /// Returns the number of connections accepted since the start.
    pub fn taken(&self, class: Class) -> u64 {
        self.control().taken[class as usize]
    }

    /// Returns the bytes delivered since the start.
    pub fn bytes(&self, class: Class, direction: Direction) -> u64 {
        self.control().bytes[class as usize][direction as usize]
    }

    /// Returns the bytes that are delayed or held now.
    pub fn waiting(&self, class: Class, direction: Direction) -> u64 {
        self.control().waiting[class as usize][direction as usize]
    }

    /// Returns the longest time for which the proxy itself did not run. It distinguishes a fault of
    /// the tested program from a machine that stood still.
    pub fn longest_stall(&self) -> Duration {
        self.control().stalled
    }

    #[track_caller]
    fn conduct(&self, classes: &[Class], directions: &[Direction], change: impl Fn(&mut Conduct)) {
        self.change(|control| {
            for class in classes {
                directions.iter().for_each(|direction| {
                    change(&mut control.directions[*class as usize][*direction as usize])
                });
            }
        });
    }

    /// Makes a change and waits until the thread has applied it.
    #[track_caller]
    fn change(&self, change: impl FnOnce(&mut Control)) {
        let mut control = self.control();
        change(&mut control);
        control.wanted += 1;
        let wanted = control.wanted;
        self.wake();
        let (control, waited) = self
            .shared
            .obeyed
            .wait_timeout_while(control, PATIENCE, |control| control.done < wanted)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        assert!(!waited.timed_out(), "the proxy does not apply the change");
        drop(control);
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.shared.control()
    }

    fn wake(&self) {
        // A full pipe wakes the thread anyway.
        _ = (&self.wake).write(&[1]);
    }
}

impl Shared {
    /// The thread panics only by a bug of its own, which must not hide the failure of a test.
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.control().stop = true;
        if std::thread::panicking() {
            eprintln!("--- longest stall of the proxy itself: {:?} ---", self.longest_stall());
        }
        self.wake();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(
            std::thread::panicking() || ended.is_none_or(|ended| ended.is_ok()),
            "the proxy's thread panicked"
        );
    }
}

/// Closes with a reset, as a firewall or a crash does.
fn reset(stream: &TcpStream) {
    // If the connection has ended already, nothing is left to do.
    _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
