//! The date of the reference service through real caches, one second after midnight.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hotrow_lab::nginx::{Backend, Cache, Form, Front, Life, configuration};

use super::world::{FORMS, Nginx, Reply, ask, front};

const DAY_S: u64 = 86_400;
/// From the start until the service's midnight: time for everything to start and to be in the caches. A machine that is too slow
/// for the first gets the next.
const BEFORE_S: [u64; 3] = [4, 15, 60];
/// A life that would carry yesterday's date into the next day.
const LONG_S: u32 = 3_600;
/// How long is asked after midnight.
const AFTER: Duration = Duration::from_millis(2_500);

/// The reference service; it ends with this value.
struct Dates {
    child: Child,
    address: SocketAddr,
    /// Its midnight, by the machine's clock, in s since 1970.
    midnight_s: u64,
}

impl Dates {
    fn start(before_s: u64) -> Self {
        let midnight_s = since_1970().as_secs() + before_s;
        let offset = DAY_S - midnight_s % DAY_S;
        let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow"));
        command.args(["lab", "reference", "--listen", "127.0.0.1:0", "--clock-offset-s", &offset.to_string()]);
        let mut child = command.env("TZ", "UTC").stdout(Stdio::piped()).spawn().expect("started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit_once("http://").and_then(|(_, address)| address.parse().ok());
        Self { child, address: address.unwrap_or_else(|| panic!("no address: {line:?}")), midnight_s }
    }
}

impl Drop for Dates {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

fn date(from: SocketAddr) -> Reply {
    let reply = ask(from, "GET /what-date-is-it HTTP/1.1\r\nHost: dates\r\nConnection: close\r\n\r\n");
    assert_eq!(reply.status, 200, "{}", reply.head);
    reply
}

/// The first of the dates.
fn day(reply: &Reply) -> String {
    reply.body.split_inclusive('}').next().expect("one at least").trim_start_matches('[').to_owned()
}

fn keeping(form: Form, ttl_s: u32, life: Life, backend: Backend, folder: &tempfile::TempDir) -> Front {
    let mut front = front(form, vec![backend], folder);
    front.cache = Some(Cache { ttl_s, life });
    front
}

#[test]
fn the_date_is_right_one_second_after_midnight_through_every_cache() {
    let seen = BEFORE_S.into_iter().any(midnight);
    assert!(seen, "this machine took more than {BEFORE_S:?} s to start some programs");
}

/// Asks before, at and after a midnight; false when it was there before everything was ready.
fn midnight(before_s: u64) -> bool {
    let dates = Dates::start(before_s);
    let folder = tempfile::tempdir().unwrap();
    let backend = Backend { address: dates.address, weight: 1 };
    let lives = [(1, Life::AtMost), (LONG_S, Life::AtMost), (1, Life::AsTold), (LONG_S, Life::AsTold)];
    let ways = FORMS.into_iter().flat_map(|form| lives.map(|life| (form, life)));
    let right: Vec<_> =
        ways.map(|(form, (ttl_s, life))| Nginx::start(keeping(form, ttl_s, life, backend, &folder))).collect();
    let wrong = wrong(backend, &folder);
    let midnight = Duration::from_secs(dates.midnight_s);
    if since_1970() + Duration::from_millis(2_200) > midnight {
        return false;
    }
    let yesterday = day(&date(dates.address));
    for nginx in wrong.iter().chain(&right) {
        assert_eq!(day(&date(nginx.address())), yesterday);
    }
    if since_1970() + Duration::from_secs(1) > midnight {
        return false;
    }
    let today = ask_over(midnight, &dates, &right);
    assert_ne!(today, yesterday);
    for nginx in &wrong {
        assert_eq!(day(&date(nginx.address())), yesterday, "{}: this test would not see what is wrong", words(nginx));
    }
    true
}

/// Asks all again and again until some time after midnight; the date is then the answer.
fn ask_over(midnight: Duration, dates: &Dates, right: &[Nginx]) -> String {
    let (mut hits, mut today) = (0, None);
    while since_1970() < midnight + AFTER || today.is_none() {
        for nginx in right {
            let asked = since_1970();
            let reply = date(nginx.address());
            hits += u32::from(reply.cache() == "HIT");
            browser_is_right(&reply, midnight);
            if asked >= midnight + Duration::from_secs(1) {
                let today = today.get_or_insert_with(|| day(&date(dates.address)));
                assert_eq!(day(&reply), *today, "{} after midnight: {}", words(nginx), reply.head);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(hits > 0);
    today.expect("it was asked after midnight")
}

/// What looks good and is not: each serves yesterday's date after midnight, so that the test is seen to see it.
fn wrong(backend: Backend, folder: &tempfile::TempDir) -> [Nginx; 2] {
    let start = |life, what: &str, instead: &str| {
        let front = keeping(Form::Tuned, LONG_S, life, backend, folder);
        let text = configuration(&front);
        assert!(text.contains(what), "{text}");
        Nginx::start_with(front, &text.replace(what, instead))
    };
    [
        // Every answer for the same time, whatever the backend says.
        start(Life::AtMost, "proxy_no_cache $too_brief;", ""),
        // Stale answers while a new one is fetched, without having been allowed to.
        start(Life::AsTold, "proxy_cache_revalidate on;", "proxy_cache_use_stale updating;"),
    ]
}

/// A cache behind nginx that follows RFC 9111 (a browser) takes the age from `Date`: it must not keep the answer past midnight
/// and a second.
fn browser_is_right(reply: &Reply, midnight: Duration) {
    let said = reply.header("Cache-Control");
    let max_age: Option<u64> = said.rsplit_once("max-age=").and_then(|(_, s)| s.parse().ok());
    let max_age = max_age.unwrap_or_else(|| panic!("{said:?}"));
    // "Sun, 22 Nov 2026 11:37:09 GMT": the time of day is enough.
    let clock = reply.header("Date").split(' ').nth(4).unwrap_or_else(|| panic!("no Date: {}", reply.head));
    let date_s = clock.split(':').fold(0, |s, part| 60 * s + part.parse::<u64>().expect("a number"));
    let made_s = midnight.as_secs() - DAY_S / 2;
    let since_s = (DAY_S + date_s - made_s % DAY_S) % DAY_S;
    // An answer of the new day may be kept until the next midnight.
    let end = if made_s + since_s < midnight.as_secs() { midnight.as_secs() } else { midnight.as_secs() + DAY_S };
    let until = made_s + since_s + max_age;
    assert!(until <= end + 1, "kept {} s past midnight and more: {}", until - end, reply.head);
}

fn words(nginx: &Nginx) -> String {
    format!("{}, {}", nginx.front.proxy_words(), nginx.front.caching_words())
}
