//! The text of a configuration.

use std::path::Path;

use super::template::servers;
use super::{Balance, Cache, Form, Front, Life};

mod age;
mod writer;

use writer::Writer;

/// Connections per worker, to clients and backends together; the original's number.
const WORKER_CONNECTIONS: u32 = 8_000;
/// Open files per worker: a socket for each connection, and files of the cache.
const WORKER_FILES: u32 = 2 * WORKER_CONNECTIONS;
/// Requests after which a connection is closed in the tuned form. nginx's own 1,000 would be some milliseconds.
const KEEPALIVE_REQUESTS: u32 = 1_000_000;

/// The configuration of a front that [`Front::validate`] accepts.
#[must_use]
pub fn configuration(front: &Front) -> String {
    let mut w = Writer::new(front.comments);
    process(&mut w, front);
    w.open("http", "");
    files(&mut w, front);
    buffers(&mut w, front.form);
    if front.form == Form::Tuned {
        w.line(
            &format!("keepalive_requests {KEEPALIVE_REQUESTS};"),
            "A client's connection is not closed after 1,000 requests, which is what nginx does by itself.",
        );
    }
    if front.balance == Balance::HashOnId {
        record(&mut w);
    }
    if let Some(cache) = front.cache {
        cache_storage(&mut w, front, cache);
    }
    upstream(&mut w, front);
    server(&mut w, front);
    w.close();
    w.text()
}

/// What concerns the process and its workers.
fn process(w: &mut Writer, front: &Front) {
    if front.as_root {
        w.line(
            "user root;",
            "Started by root, workers would be \"nobody\", who may not enter a folder of root's. On a machine that others reach: \
             a user of its own.",
        );
    }
    let workers = front.workers.map_or_else(|| "auto".to_owned(), |n| n.to_string());
    w.line(
        &format!("worker_processes {workers};"),
        if front.workers.is_none() { "As many as there are CPUs." } else { "" },
    );
    w.line(
        &format!("worker_rlimit_nofile {WORKER_FILES};"),
        "Each connection is an open file, and a request has two: the client's and the backend's.",
    );
    w.line(&format!("pid {};", in_folder(front, "nginx.pid")), "All that nginx writes is in one folder.");
    w.line("error_log stderr warn;", "Whoever starts it sees what is wrong.");
    w.open("events", "");
    w.line(&format!("worker_connections {WORKER_CONNECTIONS};"), "To clients and backends together, per worker.");
    w.line("multi_accept on;", "A worker that wakes takes all new connections, not one.");
    w.close();
}

/// What is written, and where.
fn files(w: &mut Writer, front: &Front) {
    match (front.access_log, front.form) {
        (false, _) => w.line("access_log off;", "A line per request costs; what it costs is measured apart."),
        (true, Form::Original) => w.line(&format!("access_log {};", quoted(&front.access_log_file())), ""),
        (true, Form::Tuned) => w.line(
            &format!("access_log {} combined buffer=64k flush=1s;", quoted(&front.access_log_file())),
            "Written by the 64 kB, not by the line; a line waits for a second at most.",
        ),
    }
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        w.line(&format!("{kind}_temp_path {};", in_folder(front, kind)), "");
    }
}

fn buffers(w: &mut Writer, form: Form) {
    match form {
        Form::Original => w.line(
            "proxy_buffers 32 4m;",
            "The original's. 128 MB for an answer: each buffer is asked of the system and given back, page by page.",
        ),
        Form::Tuned => {
            w.line("proxy_buffer_size 16k;", "Head and beginning of an answer.");
            w.line(
                "proxy_buffers 32 16k;",
                "512 kB: an answer of 340 kB fits whole, so that the backend is free at once.",
            );
            w.line(
                "proxy_max_temp_file_size 0;",
                "What does not fit waits at the backend, not on the disk. The cache has its own files.",
            );
        }
    }
}

/// The id that requests are dealt out by.
fn record(w: &mut Writer) {
    w.open(
        "map $uri $record",
        "The last segment of the path names the record. What has none is dealt out by its whole path.",
    );
    w.line(r#""~/(?<id>[^/]+)/?$" $id;"#, "");
    w.line("default $uri;", "");
    w.close();
}

fn cache_storage(w: &mut Writer, front: &Front, cache: Cache) {
    w.line(
        &format!(
            "proxy_cache_path {} levels=1:2 keys_zone=answers:10m max_size=256m inactive=10m use_temp_path=off;",
            in_folder(front, "cache")
        ),
        "10 MB of keys (80,000 answers), 256 MB of answers; what nobody asks for within 10 minutes goes.",
    );
    if cache.life == Life::AtMost {
        age::too_brief(w, cache.ttl_s);
    }
}

fn upstream(w: &mut Writer, front: &Front) {
    w.open("upstream backends", "");
    if front.form == Form::Tuned && front.backends.len() > 1 {
        w.line(
            "zone backends 64k;",
            "Workers share whose turn it is and who is out of order. Without it each knows only its own requests.",
        );
    }
    match front.balance {
        Balance::RoundRobin | Balance::Weights => {}
        Balance::LeastConnections => w.line("least_conn;", "To the one with the fewest requests under way, for its weight."),
        Balance::HashOnId => w.line(
            "hash $record consistent;",
            "The same record from the same backend, so that each keeps its own part. When one goes, only its records move.",
        ),
    }
    for server in servers(front) {
        w.line(&server, "");
    }
    if let Some(n) = front.upstream_keepalive {
        w.line(
            &format!("keepalive {n};"),
            "Idle connections that each worker keeps: no handshake and no new port per request.",
        );
        w.line(&format!("keepalive_requests {KEEPALIVE_REQUESTS};"), "");
    }
    w.close();
}

fn server(w: &mut Writer, front: &Front) {
    w.open("server", "");
    let tls = if front.tls.is_some() { " ssl" } else { "" };
    w.line(&format!("listen 127.0.0.1:{}{tls};", front.listen), "Reached from this machine only.");
    if let Some(tls) = &front.tls {
        w.line(&format!("ssl_certificate {};", quoted(&tls.certificate)), "");
        w.line(&format!("ssl_certificate_key {};", quoted(&tls.key)), "");
        w.line("ssl_protocols TLSv1.2 TLSv1.3;", "");
        w.line(
            "ssl_session_cache shared:tls:10m;",
            "A client that comes back is spared half of the handshake, whichever worker it meets.",
        );
    }
    w.open("location /", "");
    w.line("proxy_pass http://backends;", "");
    w.line(
        "proxy_set_header Host $host;",
        "Backends see the name that the client asked for; it is the one in the cache's key.",
    );
    to_backends(w, front);
    if let Some(cache) = front.cache {
        caching(w, front.form, cache);
    }
    w.close();
    w.close();
}

/// How nginx speaks with the backends.
fn to_backends(w: &mut Writer, front: &Front) {
    match (front.upstream_keepalive, front.form) {
        (Some(_), _) => {
            w.line("proxy_http_version 1.1;", "HTTP/1.0 cannot keep a connection.");
            w.line("proxy_set_header Connection \"\";", "Without this nginx asks the backend to close it.");
        }
        (None, Form::Tuned) => w.line(
            "proxy_http_version 1.1;",
            "Answers of unknown length come in chunks, and an end that is cut off is seen.",
        ),
        (None, Form::Original) => {
            w.line(
                "proxy_http_version 1.0;",
                "What nginx did by itself before 1.29.7: a new connection for each request.",
            );
        }
    }
}

/// What is kept, and served from there.
fn caching(w: &mut Writer, form: Form, cache: Cache) {
    w.line("proxy_cache answers;", "");
    w.line("proxy_cache_methods GET HEAD;", "POST is never kept.");
    w.line(
        "proxy_cache_key \"$request_method $scheme://$host$request_uri\";",
        "Two requests share an answer only if all of this is equal.",
    );
    w.line(
        &format!("proxy_cache_valid 200 {}s;", cache.ttl_s),
        match cache.life {
            Life::AtMost => "Every good answer is kept this long. nginx counts whole seconds: up to one more.",
            Life::AsTold => "Only for answers whose Cache-Control says nothing; else what it says is done.",
        },
    );
    match cache.life {
        Life::AtMost => age::at_most(w),
        Life::AsTold => age::as_told(w),
    }
    if form == Form::Tuned {
        w.line(
            "proxy_cache_lock on;",
            "Of many requests for an answer that is not there, one asks the backend and the others wait for it.",
        );
        w.line("proxy_cache_lock_timeout 5s;", "They wait this long at most, then ask themselves.");
    }
    w.line(
        "proxy_pass_header Date;",
        "nginx sends no Age. With the backend's own Date a cache behind it (a browser) still knows how old the answer is: with a new \
         Date, one of yesterday evening with max-age until midnight would live far into the next day.",
    );
    w.line(
        "add_header X-Cache-Status $upstream_cache_status always;",
        "HIT, MISS, EXPIRED, STALE, UPDATING: what the cache did.",
    );
}

fn in_folder(front: &Front, name: &str) -> String {
    quoted(&front.folder.join(name))
}

/// A path as nginx reads it.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
}
