//! Cached responses: which, for which requests, and for how long.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use hotrow_proxies::nginx::{Cache, CacheLifetime, ProxyProfile};

use super::harness::{Nginx, PROFILES, Reply, Service, WAIT_MAX, ask, proxy, receive, send, until};

const LIFETIMES: [CacheLifetime; 2] = [CacheLifetime::Fixed, CacheLifetime::FromBackend];

/// Starts an nginx with a cache in front of one service; the folder outlives it.
fn caching(
    profile: ProxyProfile,
    lifetime: CacheLifetime,
    ttl_s: u32,
    service: &Service,
) -> (tempfile::TempDir, Nginx) {
    let folder = tempfile::tempdir().unwrap();
    let mut proxy = proxy(profile, vec![service.with_weight(1)], &folder);
    proxy.cache = Some(Cache { ttl_s, lifetime });
    (folder, Nginx::start(proxy))
}

fn all() -> impl Iterator<Item = (ProxyProfile, CacheLifetime)> {
    PROFILES.into_iter().flat_map(|profile| LIFETIMES.map(|lifetime| (profile, lifetime)))
}

fn status_and_body(reply: &Reply) -> (&str, &str) {
    (reply.cache(), &reply.body)
}

#[test]
fn a_second_request_is_served_from_the_cache() {
    for (profile, lifetime) in all() {
        let service = Service::counting("");
        let (_folder, nginx) = caching(profile, lifetime, 60, &service);
        assert_eq!(status_and_body(&nginx.get("/x")), ("MISS", "0"), "{profile:?}, {lifetime:?}");
        for _ in 0..5 {
            assert_eq!(
                status_and_body(&nginx.get("/x")),
                ("HIT", "0"),
                "{profile:?}, {lifetime:?}"
            );
        }
        assert_eq!(service.requests(), 1);
    }
}

#[test]
fn only_equal_requests_share_a_response() {
    for (profile, lifetime) in all() {
        let service = Service::counting("");
        let (_folder, nginx) = caching(profile, lifetime, 60, &service);
        let request = |method: &str, host: &str, target: &str| {
            let text =
                format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            ask(nginx.address(), &text).body
        };
        let different = [
            ("a.test", "/x"),
            ("b.test", "/x"),
            ("a.test", "/X"),
            ("a.test", "/x?"),
            ("a.test", "/x?y=1"),
        ];
        for (number, (host, target)) in different.iter().enumerate() {
            assert_eq!(request("GET", host, target), number.to_string(), "{host}{target}");
        }
        for (number, (host, target)) in different.iter().enumerate() {
            assert_eq!(request("GET", host, target), number.to_string(), "{host}{target}");
        }
        assert_eq!(service.requests(), different.len() as u64, "{profile:?}, {lifetime:?}");
    }
}

#[test]
fn a_post_is_never_cached_or_shared() {
    for (profile, lifetime) in all() {
        // As permissive as a service can be.
        let service = Service::start(|request| {
            let name = request.text.rsplit_once("name=").map_or("", |(_, name)| name);
            ("Cache-Control: public, max-age=3600\r\n".to_owned(), format!("you are {name}"))
        });
        let (_folder, nginx) = caching(profile, lifetime, 60, &service);
        let nginx = Arc::new(nginx);
        let asking = |name: &'static str| {
            let nginx = nginx.clone();
            std::thread::spawn(move || {
                for _ in 0..25 {
                    let reply = nginx.post("/what-is-my-name", &format!("name={name}"));
                    assert_eq!(status_and_body(&reply), ("", &*format!("you are {name}")));
                }
            })
        };
        for thread in [asking("Alexander"), asking("Natalia")] {
            thread.join().unwrap();
        }
        assert_eq!(service.requests(), 50, "{profile:?}, {lifetime:?}");
        // None of them is served to a GET either.
        assert_eq!(status_and_body(&nginx.get("/what-is-my-name")), ("MISS", "you are "));
    }
}

#[test]
fn uncacheable_responses_are_not_cached() {
    let never = [
        "Cache-Control: no-store\r\n",
        "Cache-Control: private, max-age=600\r\n",
        "Cache-Control: max-age=600, No-Cache\r\n",
        "Cache-Control: public, max-age=0\r\n",
        "Set-Cookie: session=1\r\nCache-Control: max-age=600\r\n",
        "Vary: *\r\nCache-Control: max-age=600\r\n",
        "Expires: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
        "HTTP/1.1 500 Broken\r\n",
        "HTTP/1.1 404 Nothing\r\n",
    ];
    for (profile, lifetime) in all() {
        let service = Service::with_heads(never.map(str::to_owned).to_vec());
        let (_folder, nginx) = caching(profile, lifetime, 1, &service);
        for (n, head) in never.iter().enumerate() {
            let first = nginx.get(&format!("/{n}"));
            let second = nginx.get(&format!("/{n}"));
            assert_ne!(first.body, second.body, "{profile:?}, {lifetime:?}, {head}");
        }
    }
}

#[test]
fn a_fixed_lifetime_excludes_responses_with_a_shorter_one() {
    let expected_equal = [
        "",
        "max-age=60",
        "max-age=61",
        "public, max-age=100",
        "MAX-AGE=600",
        "max-age=\"60\"",
        "max-age=006000",
    ];
    let not = [
        "max-age=59",
        "Max-Age=5",
        "max-age=\"30\"",
        "max-age=0059",
        "s-maxage=10",
        "s-maxage=1,max-age=600",
        "max-age=1",
    ];
    let cases: Vec<_> = expected_equal
        .map(|says| (says, true))
        .into_iter()
        .chain(not.map(|says| (says, false)))
        .collect();
    let service = Service::with_heads(
        cases.iter().map(|(says, _)| format!("Cache-Control: {says}\r\n")).collect(),
    );
    let (_folder, nginx) = caching(ProxyProfile::Tuned, CacheLifetime::Fixed, 60, &service);
    for (n, (says, expected_equal)) in cases.iter().enumerate() {
        let first = nginx.get(&format!("/{n}"));
        let second = nginx.get(&format!("/{n}"));
        assert_eq!(first.body == second.body, *expected_equal, "{says}");
    }
}

#[test]
fn a_fixed_lifetime_overrides_a_longer_one_of_the_backend() {
    for profile in PROFILES {
        let service = Service::counting(
            "Cache-Control: public, max-age=3600, stale-while-revalidate=3600\r\n",
        );
        let (_folder, nginx) = caching(profile, CacheLifetime::Fixed, 1, &service);
        assert_eq!(status_and_body(&nginx.get("/x")), ("MISS", "0"));
        until("a new answer", || match status_and_body(&nginx.get("/x")) {
            ("HIT", "0") => false,
            ("EXPIRED", "1") => true,
            other => panic!("{profile:?}: {other:?}"),
        });
    }
}

#[test]
fn a_backends_lifetime_is_applied() {
    for profile in PROFILES {
        let service = Service::counting("Cache-Control: max-age=1\r\n");
        let (_folder, nginx) = caching(profile, CacheLifetime::FromBackend, 3_600, &service);
        assert_eq!(status_and_body(&nginx.get("/x")), ("MISS", "0"));
        until("a new answer", || match status_and_body(&nginx.get("/x")) {
            ("HIT", "0") => false,
            // The backend does not allow stale responses: there are none.
            ("EXPIRED", "1") => true,
            other => panic!("{profile:?}: {other:?}"),
        });
    }
}

#[test]
fn stale_responses_are_served_during_revalidation_if_allowed() {
    for profile in PROFILES {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let service = Service::start(move |request| {
            if request.number > 0 {
                wait.lock().unwrap().recv_timeout(WAIT_MAX).unwrap();
            }
            (
                "Cache-Control: max-age=1, stale-while-revalidate=3600\r\n".to_owned(),
                request.number.to_string(),
            )
        });
        let (_folder, nginx) = caching(profile, CacheLifetime::FromBackend, 3_600, &service);
        assert_eq!(status_and_body(&nginx.get("/x")), ("MISS", "0"));
        until("a stale answer", || match status_and_body(&nginx.get("/x")) {
            ("HIT", "0") => false,
            ("STALE", "0") => true,
            other => panic!("{profile:?}: {other:?}"),
        });
        // The backend has received the request and has not responded.
        for _ in 0..5 {
            assert_eq!(status_and_body(&nginx.get("/x")), ("UPDATING", "0"), "{profile:?}");
        }
        go.send(()).unwrap();
        until("the new answer", || match status_and_body(&nginx.get("/x")) {
            ("UPDATING", "0") => false,
            (_, "1") => true,
            other => panic!("{profile:?}: {other:?}"),
        });
        assert!(service.requests() <= 3, "{profile:?}: {}", service.requests());
    }
}

#[test]
fn the_tuned_profile_coalesces_fifty_cold_requests() {
    const N: usize = 50;
    for profile in PROFILES {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let service = Service::start(move |request| {
            if request.text.starts_with("GET /cold ") {
                let wait = wait.lock().unwrap();
                wait.recv_timeout(WAIT_MAX).unwrap();
            }
            (String::new(), "x".to_owned())
        });
        let (_folder, nginx) = caching(profile, CacheLifetime::Fixed, 600, &service);
        let request = "GET /cold HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let streams: Vec<_> = (0..N).map(|_| send(nginx.address(), request)).collect();
        // The single worker takes requests in order: after this response it has seen the earlier
        // ones.
        nginx.get("/after");
        let due = if profile == ProxyProfile::Tuned { 1 } else { N as u64 };
        until("they are at the backend", || service.requests() == due + 1);
        (0..N).for_each(|_| go.send(()).unwrap());
        assert!(streams.into_iter().all(|stream| receive(stream).body == "x"));
        assert_eq!(service.requests(), due + 1, "{profile:?}");
    }
}

#[test]
fn a_cached_response_keeps_its_date() {
    for (profile, lifetime) in all() {
        let service = Service::counting(
            "Date: Mon, 01 Jan 2024 12:00:00 GMT\r\nCache-Control: max-age=600\r\n",
        );
        let (_folder, nginx) = caching(profile, lifetime, 60, &service);
        for status in ["MISS", "HIT"] {
            let reply = nginx.get("/x");
            let dates = reply.head.matches("Date: ").count();
            assert_eq!(
                (reply.cache(), reply.header("Date"), dates),
                (status, "Mon, 01 Jan 2024 12:00:00 GMT", 1)
            );
        }
    }
}
