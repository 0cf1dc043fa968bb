//! Which backend gets what.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use hotrow_lab::nginx::{
    Backend, Balance, Cache, Form, Life, check, configuration, find, from_template, self_signed, write,
};
use hotrow_load::outcome::Outcome;
use hotrow_load::plan::{Extent, Pace, Plan};
use hotrow_load::request::{Description, Mix};
use hotrow_load::run::{Config, Expect};
use hotrow_load::target::Address;
use hotrow_load::tls::{Tls, Trust};

use super::world::{FORMS, Nginx, PATIENCE, Service, front, receive, send, until};

#[test]
fn nginx_accepts_every_topology_in_every_form() {
    let (binary, _) = find().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let balances = [Balance::RoundRobin, Balance::Weights, Balance::LeastConnections, Balance::HashOnId];
    let caches = [None, Some((1, Life::AtMost)), Some((3_600, Life::AtMost)), Some((60, Life::AsTold))];
    let backend = |weight, address: &str| Backend { address: address.parse().unwrap(), weight };
    let all = [backend(4, "127.0.0.1:9001"), backend(1, "127.0.0.1:9002"), backend(1, "[::1]:9003")];
    let mut number = 0_u32;
    for (form, balance) in FORMS.into_iter().flat_map(|form| balances.map(|balance| (form, balance))) {
        for cache in caches {
            number += 1;
            let n = 1 + number as usize % all.len();
            let mut front = front(form, all[..n].to_vec(), &folder);
            front.folder = folder.path().join(format!("with \"quotes\" and a \\ {number}"));
            front.balance = balance;
            front.cache = cache.map(|(ttl_s, life)| Cache { ttl_s, life });
            front.upstream_keepalive = number.is_multiple_of(2).then_some(16);
            (front.access_log, front.comments) = (number.is_multiple_of(3), number % 2 == 1);
            front.workers = number.is_multiple_of(5).then_some(2);
            let file = write(&front, "").unwrap();
            front.tls = number.is_multiple_of(4).then(|| self_signed(&front.folder).unwrap());
            front.validate().unwrap();
            write(&front, &configuration(&front)).unwrap();
            check(&binary, &file).unwrap_or_else(|e| panic!("{e}\n{}", configuration(&front)));
        }
    }
}

#[test]
fn what_nginx_has_against_a_configuration_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let front = front(Form::Tuned, vec![Backend { address: "127.0.0.1:1".parse().unwrap(), weight: 1 }], &folder);
    let file = write(&front, &configuration(&front).replace("proxy_pass ", "proxy_passs ")).unwrap();
    let error = check(&find().unwrap().0, &file).unwrap_err().to_string();
    assert!(error.contains("nginx refuses") && error.contains("unknown directive \"proxy_passs\""), "{error}");
}

#[test]
fn round_robin_and_weights_are_exact() {
    for form in FORMS {
        for weights in [vec![1, 1, 1], vec![4, 1], vec![4, 1, 1]] {
            let services: Vec<_> = weights.iter().map(|_| Service::named("x")).collect();
            let folder = tempfile::tempdir().unwrap();
            let backends = services.iter().zip(&weights).map(|(service, weight)| service.weighing(*weight)).collect();
            let mut front = front(form, backends, &folder);
            front.balance = if weights[0] == 1 { Balance::RoundRobin } else { Balance::Weights };
            // In the tuned form workers share whose turn it is; in the original each begins anew.
            front.workers = Some(if form == Form::Tuned { 3 } else { 1 });
            let nginx = Nginx::start(front);
            let rounds = 10;
            for _ in 0..rounds * weights.iter().sum::<u32>() {
                assert_eq!(nginx.get("/").body, "x");
            }
            let counted: Vec<_> = services.iter().map(Service::requests).collect();
            let due: Vec<_> = weights.iter().map(|weight| u64::from(weight * rounds)).collect();
            assert_eq!(counted, due, "{form:?}");
        }
    }
}

#[test]
fn least_connections_goes_around_one_that_is_busy() {
    for form in FORMS {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let slow = Service::start(move |_| {
            wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            (String::new(), "slow".to_owned())
        });
        let quick = Service::named("quick");
        let folder = tempfile::tempdir().unwrap();
        let mut front = front(form, vec![slow.weighing(1), quick.weighing(1)], &folder);
        front.balance = Balance::LeastConnections;
        let nginx = Nginx::start(front);
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let mut held = None;
        until("the slow one is asked", || {
            let stream = send(nginx.address(), request);
            until("either is asked", || slow.requests() == 1 || quick.requests() > 0);
            let asked = slow.requests() == 1;
            if asked {
                held = Some(stream)
            } else {
                receive(stream);
            }
            asked
        });
        let before = quick.requests();
        for _ in 0..10 {
            assert_eq!(nginx.get("/").body, "quick");
        }
        assert_eq!((slow.requests(), quick.requests()), (1, before + 10), "{form:?}");
        go.send(()).unwrap();
        assert_eq!(receive(held.unwrap()).body, "slow");
    }
}

#[test]
fn a_record_stays_with_its_backend_and_only_those_of_one_that_goes_move() {
    let services = [Service::named("a"), Service::named("b"), Service::named("c"), Service::named("d")];
    let homes = |form, n: usize| -> BTreeMap<u32, String> {
        let folder = tempfile::tempdir().unwrap();
        let mut front = front(form, services[..n].iter().map(|s| s.weighing(1)).collect(), &folder);
        front.balance = Balance::HashOnId;
        let nginx = Nginx::start(front);
        let home = |id| {
            let home = nginx.get(&format!("/products/{id}")).body;
            let others = [format!("/products/{id}?fields=name"), format!("/orders/{id}/")];
            assert!(others.iter().all(|path| nginx.get(path).body == home), "{id}");
            (id, home)
        };
        (0..100).map(home).collect()
    };
    for form in FORMS {
        let (before, after) = (homes(form, 4), homes(form, 3));
        for name in ["a", "b", "c", "d"] {
            let n = before.values().filter(|home| *home == name).count();
            assert!((5..60).contains(&n), "{name} has {n} of 100");
        }
        let moved: Vec<_> = before.iter().filter(|(id, home)| *home != "d" && after[id] != **home).collect();
        assert!(moved.is_empty(), "{form:?}: {moved:?}");
    }
}

#[test]
fn answers_and_requests_pass_unchanged() {
    for form in FORMS {
        let echo = Service::start(|asked| match asked.text.starts_with("GET /broken") {
            true => ("HTTP/1.1 503 Busy\r\nRetry-After: 7\r\n".to_owned(), "later".to_owned()),
            false => ("X-Own: 1\r\n".to_owned(), asked.text.clone()),
        });
        let folder = tempfile::tempdir().unwrap();
        let nginx = Nginx::start(front(form, vec![echo.weighing(1)], &folder));
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
fn connections_to_backends_are_kept_where_that_is_wanted() {
    for (form, keepalive, connections, version) in [
        (Form::Original, None, 20, " HTTP/1.0\r\n"),
        (Form::Original, Some(8), 1, " HTTP/1.1\r\n"),
        (Form::Tuned, None, 20, " HTTP/1.1\r\n"),
        (Form::Tuned, Some(8), 1, " HTTP/1.1\r\n"),
    ] {
        let service = Service::named("x");
        let folder = tempfile::tempdir().unwrap();
        let mut front = front(form, vec![service.weighing(1)], &folder);
        front.upstream_keepalive = keepalive;
        let nginx = Nginx::start(front);
        for _ in 0..20 {
            nginx.get("/");
        }
        assert_eq!(service.seen.connections.load(SeqCst), connections, "{form:?}, {keepalive:?}");
        let texts = service.seen.texts.lock().unwrap();
        assert!(texts.iter().all(|text| text.contains(version)), "{form:?}, {keepalive:?}: {:?}", texts[0]);
    }
}

#[test]
fn every_request_is_logged_or_none() {
    for (form, log) in FORMS.into_iter().flat_map(|form| [(form, true), (form, false)]) {
        let service = Service::named("x");
        let folder = tempfile::tempdir().unwrap();
        let mut front = front(form, vec![service.weighing(1)], &folder);
        front.access_log = log;
        let file = front.access_log_file();
        let nginx = Nginx::start(front);
        for n in 0..5 {
            nginx.get(&format!("/logged/{n}"));
        }
        nginx.finish();
        let lines = std::fs::read_to_string(&file).ok();
        let logged = lines.map(|text| text.lines().filter(|line| line.contains("GET /logged/")).count());
        assert_eq!(logged, log.then_some(5), "{form:?}");
    }
}

#[test]
fn https_with_a_certificate_of_its_own() {
    for form in FORMS {
        let service = Service::named("secret");
        let folder = tempfile::tempdir().unwrap();
        let mut front = front(form, vec![service.weighing(1)], &folder);
        write(&front, "").unwrap();
        let tls = self_signed(&front.folder).unwrap();
        let trust = Trust::Authority(tls.certificate.clone());
        front.tls = Some(tls);
        let nginx = Nginx::start(front);
        let outcome = load(nginx.address(), Tls::new("127.0.0.1", &trust).unwrap(), 20);
        assert_eq!((outcome.total.counts.ok, service.requests()), (20, 20), "{form:?}: {outcome:?}");
    }
}

fn load(address: std::net::SocketAddr, tls: Tls, requests: u64) -> Outcome {
    let description = Description {
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
        requests: Mix::new(&[description], None).unwrap(),
        plan: Plan {
            pace: Pace::Closed,
            warmup: std::time::Duration::ZERO,
            extent: Extent { duration: None, requests: Some(requests) },
            seed: 1,
        },
        connections: 2,
        threads: 1,
        keepalive: false,
        pipeline: 1,
        timeout: PATIENCE,
        connect_timeout: PATIENCE,
        expect: Expect::Success,
        seed: 1,
        runqueue_wait: None,
        burn_per_request: std::time::Duration::ZERO,
    };
    hotrow_load::run::run(&config, &Arc::default(), &mut |_, _| {}).unwrap()
}

#[test]
fn a_template_of_the_users_own_serves() {
    let template = "
        {user}
        worker_processes 1;
        pid \"{folder}/nginx.pid\";
        error_log stderr;
        events { worker_connections 512; }
        http {
          access_log off;
          map $uri $digits { \"~^/[0-9]{2,}$\" many; default few; }
          client_body_temp_path \"{folder}/a\"; proxy_temp_path \"{folder}/b\"; fastcgi_temp_path \"{folder}/c\";
          uwsgi_temp_path \"{folder}/d\"; scgi_temp_path \"{folder}/e\";
          upstream mine { {backends} keepalive {keepalive}; }
          server { listen {listen}; location / { proxy_pass http://mine; add_header X-Digits $digits; } }
        }";
    let services = [Service::named("a"), Service::named("b")];
    let folder = tempfile::tempdir().unwrap();
    let mut front = front(Form::Tuned, vec![services[0].weighing(3), services[1].weighing(1)], &folder);
    front.balance = Balance::Weights;
    let text = from_template(template, &front).unwrap();
    let nginx = Nginx::start_with(front, &text);
    for _ in 0..8 {
        assert_eq!(nginx.get("/12").header("X-Digits"), "many");
    }
    assert_eq!((services[0].requests(), services[1].requests()), (6, 2));
}
