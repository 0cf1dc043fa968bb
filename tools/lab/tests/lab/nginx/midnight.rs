//! The reference service's date through real caches, one second after midnight.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hotrow_proxies::nginx::{
    Backend, Cache, CacheLifetime, NginxProxy, ProxyProfile, configuration,
};

use super::harness::{Nginx, PROFILES, Reply, ask, proxy};

const DAY_S: u64 = 86_400;
/// Time from the start to the service's midnight, for starting everything and filling the caches;
/// slow machines use the later values.
const BEFORE_S: [u64; 3] = [4, 15, 60];
/// A cache time that would carry yesterday's date into the next day.
const LONG_S: u32 = 3_600;
/// Time of requests after midnight.
const AFTER: Duration = Duration::from_millis(2_500);

/// The reference service, stopped when dropped.
struct Dates {
    child: Child,
    address: SocketAddr,
    /// Its midnight on the machine's clock, in s since 1970.
    midnight_s: u64,
}

impl Dates {
    fn start(before_s: u64) -> Self {
        let midnight_s = since_1970().as_secs() + before_s;
        let offset = DAY_S - midnight_s % DAY_S;
        let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"));
        command.args([
            "reference",
            "--listen",
            "127.0.0.1:0",
            "--clock-offset-s",
            &offset.to_string(),
        ]);
        let mut child = command.env("TZ", "UTC").stdout(Stdio::piped()).spawn().expect("started");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let address =
            line.trim().rsplit_once("http://").and_then(|(_, address)| address.parse().ok());
        Self {
            child,
            address: address.unwrap_or_else(|| panic!("no address: {line:?}")),
            midnight_s,
        }
    }
}

impl Drop for Dates {
    fn drop(&mut self) {
        // It has no state to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

fn date(from: SocketAddr) -> Reply {
    let reply =
        ask(from, "GET /what-date-is-it HTTP/1.1\r\nHost: dates\r\nConnection: close\r\n\r\n");
    assert_eq!(reply.status, 200, "{}", reply.head);
    reply
}

/// Returns the first of the dates.
fn day(reply: &Reply) -> String {
    reply.body.split_inclusive('}').next().expect("one at least").trim_start_matches('[').to_owned()
}

fn with_cache(
    profile: ProxyProfile,
    ttl_s: u32,
    lifetime: CacheLifetime,
    backend: Backend,
    folder: &tempfile::TempDir,
) -> NginxProxy {
    let mut proxy = proxy(profile, vec![backend], folder);
    proxy.cache = Some(Cache { ttl_s, lifetime });
    proxy
}

#[test]
fn the_date_is_right_one_second_after_midnight_through_every_cache() {
    let seen = BEFORE_S.into_iter().any(midnight);
    assert!(seen, "this machine took more than {BEFORE_S:?} s to start some programs");
}

/// Sends requests before, at and after midnight; returns false if midnight came before everything
/// was ready.
fn midnight(before_s: u64) -> bool {
    let dates = Dates::start(before_s);
    let folder = tempfile::tempdir().unwrap();
    let backend = Backend { address: dates.address, weight: 1 };
    let lifetimes = [
        (1, CacheLifetime::Fixed),
        (LONG_S, CacheLifetime::Fixed),
        (1, CacheLifetime::FromBackend),
        (LONG_S, CacheLifetime::FromBackend),
    ];
    let variants =
        PROFILES.into_iter().flat_map(|profile| lifetimes.map(|lifetime| (profile, lifetime)));
    let right: Vec<_> = variants
        .map(|(profile, (ttl_s, lifetime))| {
            Nginx::start(with_cache(profile, ttl_s, lifetime, backend, &folder))
        })
        .collect();
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
        assert_eq!(
            day(&date(nginx.address())),
            yesterday,
            "{}: this test would not see what is wrong",
            words(nginx)
        );
    }
    true
}

/// Sends requests to all until some time after midnight; returns the date then.
fn ask_over(midnight: Duration, dates: &Dates, right: &[Nginx]) -> String {
    let mut hits = 0;
    let mut today = None;
    while since_1970() < midnight + AFTER || today.is_none() {
        for nginx in right {
            let request = since_1970();
            let reply = date(nginx.address());
            hits += u32::from(reply.cache() == "HIT");
            browser_is_right(&reply, midnight);
            if request >= midnight + Duration::from_secs(1) {
                let today = today.get_or_insert_with(|| day(&date(dates.address)));
                assert_eq!(day(&reply), *today, "{} after midnight: {}", words(nginx), reply.head);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(hits > 0);
    today.expect("it was asked after midnight")
}

/// Returns plausible but wrong configurations, each serving yesterday's date after midnight, as a
/// check of the test.
fn wrong(backend: Backend, folder: &tempfile::TempDir) -> [Nginx; 2] {
    let start = |lifetime, what: &str, instead: &str| {
        let proxy = with_cache(ProxyProfile::Tuned, LONG_S, lifetime, backend, folder);
        let text = configuration(&proxy);
        assert!(text.contains(what), "{text}");
        Nginx::start_with(proxy, &text.replace(what, instead))
    };
    [
        // A fixed lifetime that ignores the backend's headers.
        start(CacheLifetime::Fixed, "proxy_no_cache $short_lived;", ""),
        // Stale responses during a fetch, without permission.
        start(
            CacheLifetime::FromBackend,
            "proxy_cache_revalidate on;",
            "proxy_cache_use_stale updating;",
        ),
    ]
}

/// Checks that a cache following RFC 9111 (a browser) behind nginx, which takes the age from
/// `Date`, does not keep the response for more than a second past midnight.
fn browser_is_right(reply: &Reply, midnight: Duration) {
    let output_text = reply.header("Cache-Control");
    let max_age: Option<u64> =
        output_text.rsplit_once("max-age=").and_then(|(_, s)| s.parse().ok());
    let max_age = max_age.unwrap_or_else(|| panic!("{output_text:?}"));
    // "Sun, 22 Nov 2026 11:37:09 GMT": the time of day is enough.
    let clock =
        reply.header("Date").split(' ').nth(4).unwrap_or_else(|| panic!("no Date: {}", reply.head));
    let date_s =
        clock.split(':').fold(0, |s, part| 60 * s + part.parse::<u64>().expect("a number"));
    let made_s = midnight.as_secs() - DAY_S / 2;
    let since_s = (DAY_S + date_s - made_s % DAY_S) % DAY_S;
    // A response of the new day may be cached until the next midnight.
    let end = if made_s + since_s < midnight.as_secs() {
        midnight.as_secs()
    } else {
        midnight.as_secs() + DAY_S
    };
    let until = made_s + since_s + max_age;
    assert!(until <= end + 1, "cached {} s past midnight and more: {}", until - end, reply.head);
}

fn words(nginx: &Nginx) -> String {
    format!("{}, {}", nginx.proxy.describe_proxy(), nginx.proxy.describe_caching())
}
