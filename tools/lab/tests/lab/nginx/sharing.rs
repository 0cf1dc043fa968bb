//! Distribution of requests over backends.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use hotrow_load::outcome::Outcome;
use hotrow_load::plan::{LoadModel, Plan, StopCondition};
use hotrow_load::request::{RequestMix, RequestSpec};
use hotrow_load::run::{Config, ExpectedStatus};
use hotrow_proxies::nginx::{
    Backend, Balance, Cache, CacheLifetime, ProxyProfile, check, configuration, find,
    from_template, self_signed, write,
};
use hotrow_transport::target::Address;
use hotrow_transport::tls::{Tls, TlsOptions, Trust};

use super::harness::{Nginx, PROFILES, Service, WAIT_MAX, proxy, receive, send, until};

#[test]
fn nginx_accepts_every_topology_in_every_profile() {
    let (binary, _) = find().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let balances = [
        Balance::RoundRobin,
        Balance::Weights,
        Balance::LeastConnections,
        Balance::HashOnId,
        Balance::ModuloOnId,
    ];
    let caches = [
        None,
        Some((1, CacheLifetime::Fixed)),
        Some((3_600, CacheLifetime::Fixed)),
        Some((60, CacheLifetime::FromBackend)),
    ];
    let backend = |weight, address: &str| Backend { address: address.parse().unwrap(), weight };
    let all =
        [backend(4, "127.0.0.1:9001"), backend(1, "127.0.0.1:9002"), backend(1, "[::1]:9003")];
    let mut number = 0_u32;
    for (profile, balance) in
        PROFILES.into_iter().flat_map(|profile| balances.map(|balance| (profile, balance)))
    {
        for cache in caches {
            number += 1;
            let n = 1 + number as usize % all.len();
            let mut proxy = proxy(profile, all[..n].to_vec(), &folder);
            proxy.folder = folder.path().join(format!("with \"quotes\" and a \\ {number}"));
            proxy.balance = balance;
            proxy.cache = cache.map(|(ttl_s, lifetime)| Cache { ttl_s, lifetime });
            proxy.upstream_keepalive = number.is_multiple_of(2).then_some(16);
            (proxy.access_log, proxy.comments) = (number.is_multiple_of(3), number % 2 == 1);
            proxy.workers = number.is_multiple_of(5).then_some(2);
            let file = write(&proxy, "").unwrap();
            proxy.tls = number.is_multiple_of(4).then(|| self_signed(&proxy.folder).unwrap());
            proxy.validate().unwrap();
            write(&proxy, &configuration(&proxy)).unwrap();
            check(&binary, &file).unwrap_or_else(|e| panic!("{e}\n{}", configuration(&proxy)));
        }
    }
}

#[test]
fn errors_of_nginx_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = proxy(
        ProxyProfile::Tuned,
        vec![Backend { address: "127.0.0.1:1".parse().unwrap(), weight: 1 }],
        &folder,
    );
    let file =
        write(&proxy, &configuration(&proxy).replace("proxy_pass ", "proxy_passs ")).unwrap();
    let error = check(&find().unwrap().0, &file).unwrap_err().to_string();
    assert!(
        error.contains("nginx rejects") && error.contains("unknown directive \"proxy_passs\""),
        "{error}"
    );
}

#[test]
fn round_robin_and_weights_are_exact() {
    for profile in PROFILES {
        for weights in [vec![1, 1, 1], vec![4, 1], vec![4, 1, 1]] {
            let services: Vec<_> = weights.iter().map(|_| Service::named("x")).collect();
            let folder = tempfile::tempdir().unwrap();
            let backends = services
                .iter()
                .zip(&weights)
                .map(|(service, weight)| service.with_weight(*weight))
                .collect();
            let mut proxy = proxy(profile, backends, &folder);
            proxy.balance = if weights[0] == 1 { Balance::RoundRobin } else { Balance::Weights };
            // In the tuned profile workers share the rotation; in the published one each starts
            // from the beginning.
            proxy.workers = Some(if profile == ProxyProfile::Tuned { 3 } else { 1 });
            let nginx = Nginx::start(proxy);
            let rounds = 10;
            for _ in 0..rounds * weights.iter().sum::<u32>() {
                assert_eq!(nginx.get("/").body, "x");
            }
            let counted: Vec<_> = services.iter().map(Service::requests).collect();
            let due: Vec<_> = weights.iter().map(|weight| u64::from(weight * rounds)).collect();
            assert_eq!(counted, due, "{profile:?}");
        }
    }
}

#[test]
fn least_connections_avoids_a_busy_backend() {
    for profile in PROFILES {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let slow = Service::start(move |_| {
            wait.lock().unwrap().recv_timeout(WAIT_MAX).unwrap();
            (String::new(), "slow".to_owned())
        });
        let quick = Service::named("quick");
        let folder = tempfile::tempdir().unwrap();
        let mut proxy = proxy(profile, vec![slow.with_weight(1), quick.with_weight(1)], &folder);
        proxy.balance = Balance::LeastConnections;
        let nginx = Nginx::start(proxy);
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let mut buffered = None;
        until("the slow one has a request", || {
            let stream = send(nginx.address(), request);
            until("either has a request", || slow.requests() == 1 || quick.requests() > 0);
            let request = slow.requests() == 1;
            if request {
                buffered = Some(stream)
            } else {
                receive(stream);
            }
            request
        });
        let before = quick.requests();
        for _ in 0..10 {
            assert_eq!(nginx.get("/").body, "quick");
        }
        assert_eq!((slow.requests(), quick.requests()), (1, before + 10), "{profile:?}");
        go.send(()).unwrap();
        assert_eq!(receive(buffered.unwrap()).body, "slow");
    }
}

#[test]
fn hashing_moves_only_the_records_of_a_removed_backend() {
    let services =
        [Service::named("a"), Service::named("b"), Service::named("c"), Service::named("d")];
    let homes = |profile, balance, n: usize| -> BTreeMap<u32, String> {
        let folder = tempfile::tempdir().unwrap();
        let mut proxy =
            proxy(profile, services[..n].iter().map(|s| s.with_weight(1)).collect(), &folder);
        proxy.balance = balance;
        let nginx = Nginx::start(proxy);
        let home = |id| {
            let home = nginx.get(&format!("/products/{id}")).body;
            let others = [format!("/products/{id}?fields=name"), format!("/orders/{id}/")];
            assert!(others.iter().all(|path| nginx.get(path).body == home), "{id}");
            (id, home)
        };
        (0..100).map(home).collect()
    };
    for profile in PROFILES {
        let before = homes(profile, Balance::HashOnId, 4);
        let after = homes(profile, Balance::HashOnId, 3);
        for name in ["a", "b", "c", "d"] {
            let n = before.values().filter(|home| *home == name).count();
            assert!((5..60).contains(&n), "{name} has {n} of 100");
        }
        let moved: Vec<_> =
            before.iter().filter(|(id, home)| *home != "d" && after[id] != **home).collect();
        assert!(moved.is_empty(), "{profile:?}: {moved:?}");
        let before = homes(profile, Balance::ModuloOnId, 4);
        let after = homes(profile, Balance::ModuloOnId, 3);
        let moved = before.iter().filter(|(id, home)| *home != "d" && after[id] != **home).count();
        assert!(moved > 30, "{profile:?}: only {moved} of about 75 moved");
    }
}

#[test]
fn requests_and_responses_pass_unchanged() {
    for profile in PROFILES {
        let echo = Service::start(|request| match request.text.starts_with("GET /broken") {
            true => ("HTTP/1.1 503 Busy\r\nRetry-After: 7\r\n".to_owned(), "later".to_owned()),
            false => ("X-Own: 1\r\n".to_owned(), request.text.clone()),
        });
        let folder = tempfile::tempdir().unwrap();
        let nginx = Nginx::start(proxy(profile, vec![echo.with_weight(1)], &folder));
        let large = "x".repeat(340_001);
        let reply = nginx.post("/p?a=b%2Fc&d", &large);
        assert_eq!((reply.status, reply.header("X-Own")), (200, "1"));
        assert!(reply.body.starts_with("POST /p?a=b%2Fc&d HTTP/1."), "{}", &reply.body[..60]);
        assert!(reply.body.contains("\r\nHost: a.test\r\n") && reply.body.ends_with(&large));
        let reply = nginx.get("/broken");
        assert_eq!((reply.status, reply.header("Retry-After"), &*reply.body), (503, "7", "later"));
    }
}

#[test]
fn upstream_keepalive_is_applied() {
    for (profile, keepalive, connections, version) in [
        (ProxyProfile::Published, None, 20, " HTTP/1.0\r\n"),
        (ProxyProfile::Published, Some(8), 1, " HTTP/1.1\r\n"),
        (ProxyProfile::Tuned, None, 20, " HTTP/1.1\r\n"),
        (ProxyProfile::Tuned, Some(8), 1, " HTTP/1.1\r\n"),
    ] {
        let service = Service::named("x");
        let folder = tempfile::tempdir().unwrap();
        let mut proxy = proxy(profile, vec![service.with_weight(1)], &folder);
        proxy.upstream_keepalive = keepalive;
        let nginx = Nginx::start(proxy);
        for _ in 0..20 {
            nginx.get("/");
        }
        assert_eq!(
            service.seen.connections.load(SeqCst),
            connections,
            "{profile:?}, {keepalive:?}"
        );
        let texts = service.seen.texts.lock().unwrap();
        assert!(
            texts.iter().all(|text| text.contains(version)),
            "{profile:?}, {keepalive:?}: {:?}",
            texts[0]
        );
    }
}

#[test]
fn the_access_log_has_every_request_or_none() {
    for (profile, log) in
        PROFILES.into_iter().flat_map(|profile| [(profile, true), (profile, false)])
    {
        let service = Service::named("x");
        let folder = tempfile::tempdir().unwrap();
        let mut proxy = proxy(profile, vec![service.with_weight(1)], &folder);
        proxy.access_log = log;
        let file = proxy.access_log_file();
        let nginx = Nginx::start(proxy);
        for n in 0..5 {
            nginx.get(&format!("/logged/{n}"));
        }
        nginx.finish();
        let lines = std::fs::read_to_string(&file).ok();
        let logged =
            lines.map(|text| text.lines().filter(|line| line.contains("GET /logged/")).count());
        assert_eq!(logged, log.then_some(5), "{profile:?}");
    }
}

#[test]
fn https_works_with_a_self_signed_certificate() {
    for profile in PROFILES {
        let service = Service::named("secret");
        let folder = tempfile::tempdir().unwrap();
        let mut proxy = proxy(profile, vec![service.with_weight(1)], &folder);
        write(&proxy, "").unwrap();
        let tls = self_signed(&proxy.folder).unwrap();
        let trust = Trust::Authority(tls.certificate.clone());
        proxy.tls = Some(tls);
        let nginx = Nginx::start(proxy);
        let options = TlsOptions { trust: trust.clone(), ..TlsOptions::default() };
        let outcome = load(nginx.address(), Tls::new("127.0.0.1", &options).unwrap(), 20);
        assert_eq!(
            (outcome.total.counts.ok, service.requests()),
            (20, 20),
            "{profile:?}: {outcome:?}"
        );
    }
}

fn load(address: std::net::SocketAddr, tls: Tls, requests: u64) -> Outcome {
    let description = RequestSpec {
        method: "GET",
        path: "/",
        host: "127.0.0.1",
        headers: &[],
        body: None,
        weight: 1,
        keepalive: false,
    };
    let config = Config {
        address: Address::Tcp(address),
        tls: Some(tls),
        requests: RequestMix::new(&[description], None).unwrap(),
        plan: Plan {
            model: LoadModel::Closed,
            warmup: std::time::Duration::ZERO,
            stop: StopCondition { duration: None, requests: Some(requests) },
            seed: 1,
        },
        connections: 2,
        threads: 1,
        keepalive: false,
        version: hotrow_transport::tls::HttpVersion::Http1,
        depth: 1,
        timeout: WAIT_MAX,
        connect_timeout: WAIT_MAX,
        expect: ExpectedStatus::Success,
        seed: 1,
        runqueue_wait: None,
        burn_per_request: std::time::Duration::ZERO,
    };
    hotrow_load::run::run(&config, &Arc::default(), &mut |_, _| {}).unwrap()
}

#[test]
fn a_users_template_serves() {
    let template = "
        {user}
        worker_processes 1;
        pid \"{folder}/nginx.pid\";
        error_log stderr;
        events { worker_connections 512; }
        http {
          access_log off;
          map $uri $digits { \"~^/[0-9]{2,}$\" many; default few; }
            client_body_temp_path \"{folder}/a\"; proxy_temp_path \"{folder}/b\";
          fastcgi_temp_path \"{folder}/c\"; uwsgi_temp_path \"{folder}/d\";
          scgi_temp_path \"{folder}/e\";
          upstream mine { {backends} keepalive {keepalive}; }
            server {
            listen {listen};
            location / { proxy_pass http://mine; add_header X-Digits $digits; }
          }
        }";
    let services = [Service::named("a"), Service::named("b")];
    let folder = tempfile::tempdir().unwrap();
    let mut proxy = proxy(
        ProxyProfile::Tuned,
        vec![services[0].with_weight(3), services[1].with_weight(1)],
        &folder,
    );
    proxy.balance = Balance::Weights;
    let text = from_template(template, &proxy).unwrap();
    let nginx = Nginx::start_with(proxy, &text);
    for _ in 0..8 {
        assert_eq!(nginx.get("/12").header("X-Digits"), "many");
    }
    assert_eq!((services[0].requests(), services[1].requests()), (6, 2));
}
