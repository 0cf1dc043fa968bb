//! The commands `hotrow lab nginx` and `hotrow lab delay`.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use hotrow_proxies::nginx::{check, find, self_signed};

use super::harness::{Service, WAIT_MAX, ask};

fn hotrow(folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotrow-lab"));
    command.current_dir(folder).args(["nginx"]).args(arguments.split_whitespace());
    command.output().expect("started")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn every_listed_deployment_is_accepted_by_nginx() {
    let (binary, _) = find().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("nginx");
    std::fs::create_dir(&inner).unwrap();
    self_signed(&inner).unwrap();
    let list = hotrow(folder.path(), "--list");
    let names: Vec<_> = text(&list.stdout)
        .lines()
        .flat_map(|line| line.split("  ").next().unwrap_or_default().split(','))
        .map(str::trim)
        .collect();
    for wanted in [
        "w10",
        "w11",
        "w12",
        "w13",
        "round-robin",
        "round-robin-cache",
        "weights",
        "least-connections",
        "hash",
        "cache-control",
        "tls",
    ] {
        assert!(names.contains(&wanted), "{wanted} is not among {names:?}");
    }
    for (name, profile) in names.iter().flat_map(|name| [(name, "published"), (name, "tuned")]) {
        let out = hotrow(folder.path(), &format!("--for {name} --profile {profile}"));
        assert!(out.status.success(), "{}", text(&out.stderr));
        assert!(
            text(&out.stdout).lines().filter(|line| line.trim_start().starts_with('#')).count()
                > 10,
            "{name}"
        );
        let file = inner.join("nginx.conf");
        std::fs::write(&file, &out.stdout).unwrap();
        check(&binary, &file).unwrap_or_else(|e| panic!("{name}, {profile}: {e}"));
    }
}

#[test]
fn options_reach_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let options = "--for w12 --profile published --listen 8123 \
        --backend 127.0.0.1:1 --backend 127.0.0.1:2 --backend 127.0.0.1:3 \
        --cache-s 5 --upstream-keepalive 7 --workers 3 --access-log --folder here \
        --certificate c --key k";
    let out = hotrow(folder.path(), options);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let printed = text(&out.stdout);
    let absolute =
        |name: &str| format!("\"{}\"", folder.path().canonicalize().unwrap().join(name).display());
    for line in [
        "listen 127.0.0.1:8123 ssl;",
        "server 127.0.0.1:3;",
        "proxy_cache_valid 200 5s;",
        "keepalive 7;",
        "worker_processes 3;",
        &format!("access_log {};", absolute("here/access.log")),
        &format!("ssl_certificate {};", absolute("c")),
    ] {
        assert!(printed.lines().any(|is| is.trim() == line), "{line} is not in\n{printed}");
    }
    let out = hotrow(
        folder.path(),
        "--for w13 --backend 127.0.0.1:1 --backend 7*127.0.0.1:2 --backend 127.0.0.1:3",
    );
    let servers: Vec<_> = text(&out.stdout)
        .lines()
        .filter_map(|line| line.trim().strip_prefix("server 127"))
        .collect();
    assert_eq!(servers, [".0.0.1:1 weight=4;", ".0.0.1:2 weight=7;", ".0.0.1:3;"]);
}

#[test]
fn invalid_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, why) in [
        ("", "--for <NAME>"),
        ("--for w99", "unknown deployment; known ones are one-backend, w10, round-robin"),
        ("--for w10 --backend localhost:1", "must be IP:PORT, as in 127.0.0.1:9001"),
        ("--for w10 --backend x*127.0.0.1:1", "the weight \"x\" must be a whole number"),
        (
            "--for w13 --backend 0*127.0.0.1:1",
            "the weight of backend 127.0.0.1:1 is 0: it must be 1 to 1000",
        ),
        (
            "--for w10 --cache-s 5",
            "--cache-s needs a deployment with a cache, such as round-robin-cache; \
             one-backend has none",
        ),
        ("--for w12 --cache-s 0", "cache time of 0 s: must be 1 to"),
        ("--for w10 --upstream-keepalive 0", "upstream keep-alive of 0 connections"),
        ("--for w10 --folder $HOME", "contains a $, which nginx takes for a variable"),
        ("--for w10 --listen 0", "must be a whole number from 1 to 65535"),
        ("--for w10 --key k", "--certificate <FILE>"),
    ] {
        let out = hotrow(folder.path(), arguments);
        assert_eq!(out.status.code(), Some(2), "{arguments}: {}", text(&out.stderr));
        assert!(
            text(&out.stderr).contains(why) && out.stdout.is_empty(),
            "{arguments}: {}",
            text(&out.stderr)
        );
    }
}

#[test]
fn the_relay_runs_in_its_own_process_and_stops_on_sigterm() {
    let service = Service::named("far away");
    let rtt = std::time::Duration::from_millis(20);
    let argv = hotrow_proxies::delay::argv(
        Path::new(env!("CARGO_BIN_EXE_hotrow-lab")),
        "127.0.0.1:0".parse().unwrap(),
        service.address,
        rtt,
    );
    let mut child = Command::new(&argv[0]).args(&argv[1..]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("{line:?}"));
    let started = Instant::now();
    let reply = ask(address, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(reply.body, "far away");
    assert!(started.elapsed() >= 2 * rtt, "{:?}", started.elapsed());
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let deadline = Instant::now() + WAIT_MAX;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it does not stop");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(TcpStream::connect(address).is_err(), "the port is still open");
}
