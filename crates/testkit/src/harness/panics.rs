//! Panics that a test requests in a thread of the real binary, and the reports of the process.

use std::path::PathBuf;

use rustix::process::Signal;
use tempfile::TempDir;

use super::metrics::Metrics;
use super::{Client, Config, SOON, Server, await_until};

/// A server with one thread that panics on request.
pub struct Panicking {
    pub server: Server,
    thread: String,
    trigger: PathBuf,
    _folder: TempDir,
}

impl Panicking {
    /// Starts on `config`; `thread` panics once, after [`Self::panic`].
    #[track_caller]
    pub fn once(config: &Config, thread: &str) -> Self {
        Self::start("panic", thread, |failpoints| Server::start_with(config, failpoints))
    }

    /// Starts on `config`; `thread` panics at every iteration, after [`Self::panic`].
    #[track_caller]
    pub fn always(config: &Config, thread: &str) -> Self {
        Self::start("panic-always", thread, |failpoints| Server::start_with(config, failpoints))
    }

    /// Starts a server by `start` with the variables of the failpoint.
    #[track_caller]
    pub fn start(kind: &str, thread: &str, start: impl FnOnce(&[(&str, &str)]) -> Server) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let trigger = folder.path().join("now");
        let failpoint = format!("{kind}:{thread}@{}", trigger.display());
        let server = start(&[("HOTROW_FAILPOINTS", &failpoint)]);
        server.await_ready();
        Self { server, thread: thread.to_owned(), trigger, _folder: folder }
    }

    /// Makes the thread panic at the next iteration of its loop.
    pub fn panic(&self) {
        std::fs::write(&self.trigger, "").expect("write the trigger");
    }

    /// Makes the thread panic and waits until the panic is counted. `turn` makes the thread's loop
    /// iterate.
    #[track_caller]
    pub fn panic_once(&self, mut turn: impl FnMut(&Server)) {
        assert_eq!(self.panics(), Some(0.0), "no panic so far");
        self.panic();
        await_until(&format!("{} to panic", self.thread), SOON, || {
            turn(&self.server);
            self.panics() == Some(1.0)
        });
    }

    /// Returns the counted panics of the thread; `None` if the admin side does not answer.
    fn panics(&self) -> Option<f64> {
        let page = try_admin(&self.server, "/metrics")?;
        // A thread that starts behind readiness has no series before.
        let labels = [("thread", self.thread.as_str())];
        Some(Metrics::parse(&page.1).sum_or_zero("hotrow_thread_panics_total", &labels))
    }

    /// Waits until `/healthz` fails, and returns its text.
    #[track_caller]
    pub fn await_unhealthy(&self) -> String {
        let mut said = String::new();
        await_until("/healthz to fail", SOON, || {
            let Some((status, text)) = try_admin(&self.server, "/healthz") else { return false };
            said = text;
            status == 503
        });
        said
    }

    /// Asserts that the server is healthy, has logged the panic once, and ends on request.
    #[track_caller]
    pub fn ends_well(self) {
        let health = try_admin(&self.server, "/healthz").expect("the admin side answers again");
        assert_eq!(health, (200, "alive\n".to_owned()), "one panic is no series");
        self.server.signal(Signal::TERM);
        let ended = self.server.ended(SOON);
        assert_eq!(ended.code(), 0, "{ended:?}");
        // The log is complete only now, because a thread of its own writes it.
        assert_eq!(ended.log.matches("a thread panicked").count(), 1, "{}", ended.log);
        assert!(ended.log.contains("stop requested"), "{}", ended.log);
    }
}

/// Sends `GET path` to the admin side. Returns status and body, `None` without a complete answer.
fn try_admin(server: &Server, path: &str) -> Option<(u16, String)> {
    let mut admin = Client::try_connect(server.admin).ok()?;
    admin.try_send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")).ok()?;
    let answer = admin.try_answer("GET", SOON).ok()?;
    Some((answer.status, answer.text()))
}
