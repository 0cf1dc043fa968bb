//! What is kept, for whom, and for how long.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use hotrow_lab::nginx::{Cache, Form, Life};

use super::world::{FORMS, Nginx, PATIENCE, Reply, Service, ask, front, receive, send, until};

const LIVES: [Life; 2] = [Life::AtMost, Life::AsTold];

/// An nginx that keeps answers, in front of one service; its folder outlives it.
fn caching(form: Form, life: Life, ttl_s: u32, service: &Service) -> (tempfile::TempDir, Nginx) {
    let folder = tempfile::tempdir().unwrap();
    let mut front = front(form, vec![service.weighing(1)], &folder);
    front.cache = Some(Cache { ttl_s, life });
    (folder, Nginx::start(front))
}

fn all() -> impl Iterator<Item = (Form, Life)> {
    FORMS.into_iter().flat_map(|form| LIVES.map(|life| (form, life)))
}

fn shown(reply: &Reply) -> (&str, &str) {
    (reply.cache(), &reply.body)
}

#[test]
fn a_second_request_is_answered_from_the_cache() {
    for (form, life) in all() {
        let service = Service::numbering("");
        let (_folder, nginx) = caching(form, life, 60, &service);
        assert_eq!(shown(&nginx.get("/x")), ("MISS", "0"), "{form:?}, {life:?}");
        for _ in 0..5 {
            assert_eq!(shown(&nginx.get("/x")), ("HIT", "0"), "{form:?}, {life:?}");
        }
        assert_eq!(service.requests(), 1);
    }
}

#[test]
fn only_equal_requests_share_an_answer() {
    for (form, life) in all() {
        let service = Service::numbering("");
        let (_folder, nginx) = caching(form, life, 60, &service);
        let request = |method: &str, host: &str, target: &str| {
            let text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            ask(nginx.address(), &text).body
        };
        let different = [("a.test", "/x"), ("b.test", "/x"), ("a.test", "/X"), ("a.test", "/x?"), ("a.test", "/x?y=1")];
        for (number, (host, target)) in different.iter().enumerate() {
            assert_eq!(request("GET", host, target), number.to_string(), "{host}{target}");
        }
        for (number, (host, target)) in different.iter().enumerate() {
            assert_eq!(request("GET", host, target), number.to_string(), "{host}{target}");
        }
        assert_eq!(service.requests(), different.len() as u64, "{form:?}, {life:?}");
    }
}

#[test]
fn a_post_is_never_kept_and_two_names_never_meet() {
    for (form, life) in all() {
        // As permissive as a service can be.
        let service = Service::start(|asked| {
            let name = asked.text.rsplit_once("name=").map_or("", |(_, name)| name);
            ("Cache-Control: public, max-age=3600\r\n".to_owned(), format!("you are {name}"))
        });
        let (_folder, nginx) = caching(form, life, 60, &service);
        let nginx = Arc::new(nginx);
        let asking = |name: &'static str| {
            let nginx = nginx.clone();
            std::thread::spawn(move || {
                for _ in 0..25 {
                    let reply = nginx.post("/what-is-my-name", &format!("name={name}"));
                    assert_eq!(shown(&reply), ("", &*format!("you are {name}")));
                }
            })
        };
        for thread in [asking("Alexander"), asking("Natalia")] {
            thread.join().unwrap();
        }
        assert_eq!(service.requests(), 50, "{form:?}, {life:?}");
        // Nor does one of them become the answer to a GET.
        assert_eq!(shown(&nginx.get("/what-is-my-name")), ("MISS", "you are "));
    }
}

#[test]
fn what_may_not_be_kept_is_not() {
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
    for (form, life) in all() {
        let service = Service::heading(never.map(str::to_owned).to_vec());
        let (_folder, nginx) = caching(form, life, 1, &service);
        for (n, head) in never.iter().enumerate() {
            let (first, second) = (nginx.get(&format!("/{n}")), nginx.get(&format!("/{n}")));
            assert_ne!(first.body, second.body, "{form:?}, {life:?}, {head}");
        }
    }
}

#[test]
fn at_most_is_the_smaller_of_two_lives_or_none() {
    let kept =
        ["", "max-age=60", "max-age=61", "public, max-age=100", "MAX-AGE=600", "max-age=\"60\"", "max-age=006000"];
    let not = [
        "max-age=59",
        "Max-Age=5",
        "max-age=\"30\"",
        "max-age=0059",
        "s-maxage=10",
        "s-maxage=1,max-age=600",
        "max-age=1",
    ];
    let cases: Vec<_> = kept.map(|says| (says, true)).into_iter().chain(not.map(|says| (says, false))).collect();
    let service = Service::heading(cases.iter().map(|(says, _)| format!("Cache-Control: {says}\r\n")).collect());
    let (_folder, nginx) = caching(Form::Tuned, Life::AtMost, 60, &service);
    for (n, (says, kept)) in cases.iter().enumerate() {
        let (first, second) = (nginx.get(&format!("/{n}")), nginx.get(&format!("/{n}")));
        assert_eq!(first.body == second.body, *kept, "{says}");
    }
}

#[test]
fn an_answer_is_gone_after_its_life_however_long_the_backend_would_have_it() {
    for form in FORMS {
        let service = Service::numbering("Cache-Control: public, max-age=3600, stale-while-revalidate=3600\r\n");
        let (_folder, nginx) = caching(form, Life::AtMost, 1, &service);
        assert_eq!(shown(&nginx.get("/x")), ("MISS", "0"));
        until("a new answer", || match shown(&nginx.get("/x")) {
            ("HIT", "0") => false,
            ("EXPIRED", "1") => true,
            other => panic!("{form:?}: {other:?}"),
        });
    }
}

#[test]
fn as_told_an_answer_lives_as_long_as_the_backend_says() {
    for form in FORMS {
        let service = Service::numbering("Cache-Control: max-age=1\r\n");
        let (_folder, nginx) = caching(form, Life::AsTold, 3_600, &service);
        assert_eq!(shown(&nginx.get("/x")), ("MISS", "0"));
        until("a new answer", || match shown(&nginx.get("/x")) {
            ("HIT", "0") => false,
            // It does not allow stale answers: there are none.
            ("EXPIRED", "1") => true,
            other => panic!("{form:?}: {other:?}"),
        });
    }
}

#[test]
fn stale_answers_are_served_while_one_is_fetched_where_the_backend_allows_it() {
    for form in FORMS {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let service = Service::start(move |asked| {
            if asked.number > 0 {
                wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            }
            ("Cache-Control: max-age=1, stale-while-revalidate=3600\r\n".to_owned(), asked.number.to_string())
        });
        let (_folder, nginx) = caching(form, Life::AsTold, 3_600, &service);
        assert_eq!(shown(&nginx.get("/x")), ("MISS", "0"));
        until("a stale answer", || match shown(&nginx.get("/x")) {
            ("HIT", "0") => false,
            ("STALE", "0") => true,
            other => panic!("{form:?}: {other:?}"),
        });
        // The backend is being asked and has not answered.
        for _ in 0..5 {
            assert_eq!(shown(&nginx.get("/x")), ("UPDATING", "0"), "{form:?}");
        }
        go.send(()).unwrap();
        until("the new answer", || match shown(&nginx.get("/x")) {
            ("UPDATING", "0") => false,
            (_, "1") => true,
            other => panic!("{form:?}: {other:?}"),
        });
        assert!(service.requests() <= 3, "{form:?}: {}", service.requests());
    }
}

#[test]
fn of_fifty_requests_for_a_cold_answer_the_tuned_form_passes_one_on() {
    const N: usize = 50;
    for form in FORMS {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let service = Service::start(move |asked| {
            if asked.text.starts_with("GET /cold ") {
                let wait = wait.lock().unwrap();
                wait.recv_timeout(PATIENCE).unwrap();
            }
            (String::new(), "x".to_owned())
        });
        let (_folder, nginx) = caching(form, Life::AtMost, 600, &service);
        let request = "GET /cold HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let streams: Vec<_> = (0..N).map(|_| send(nginx.address(), request)).collect();
        // The one worker takes requests in order: when this is answered, it has seen those before.
        nginx.get("/after");
        let due = if form == Form::Tuned { 1 } else { N as u64 };
        until("they are at the backend", || service.requests() == due + 1);
        (0..N).for_each(|_| go.send(()).unwrap());
        assert!(streams.into_iter().all(|stream| receive(stream).body == "x"));
        assert_eq!(service.requests(), due + 1, "{form:?}");
    }
}

#[test]
fn an_answer_from_the_cache_does_not_look_younger_than_it_is() {
    for (form, life) in all() {
        let service = Service::numbering("Date: Mon, 01 Jan 2024 12:00:00 GMT\r\nCache-Control: max-age=600\r\n");
        let (_folder, nginx) = caching(form, life, 60, &service);
        for status in ["MISS", "HIT"] {
            let reply = nginx.get("/x");
            let dates = reply.head.matches("Date: ").count();
            assert_eq!((reply.cache(), reply.header("Date"), dates), (status, "Mon, 01 Jan 2024 12:00:00 GMT", 1));
        }
    }
}
