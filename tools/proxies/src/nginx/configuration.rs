//! Text of an nginx configuration.

use super::template::servers;
use super::{Balance, Cache, CacheLifetime, NginxProxy, ProxyProfile};

mod age;
pub(super) mod writer;

use writer::{Writer, quoted};

/// Connections per worker, to clients and backends; the published number.
const WORKER_CONNECTIONS: u32 = 8_000;
/// Open files per worker: a socket per connection, and cache files.
const WORKER_FILES: u32 = 2 * WORKER_CONNECTIONS;
/// Requests per connection in the tuned profile; nginx's default of 1,000 lasts only milliseconds.
const KEEPALIVE_REQUESTS: u32 = 1_000_000;

/// Returns the configuration of a proxy that [`NginxProxy::validate`] accepts.
pub fn configuration(proxy: &NginxProxy) -> String {
    let mut w = Writer::new(proxy.comments);
    process(&mut w, proxy);
    w.open("http", "");
    files(&mut w, proxy);
    buffers(&mut w, proxy.profile);
    if proxy.profile == ProxyProfile::Tuned {
        w.line(
            &format!("keepalive_requests {KEEPALIVE_REQUESTS};"),
            "A client's connection is not closed after 1,000 requests, nginx's default.",
        );
    }
    if matches!(proxy.balance, Balance::HashOnId | Balance::ModuloOnId) {
        record(&mut w);
    }
    if let Some(level) = proxy.gzip {
        w.line("gzip on;", "For clients that accept it (Accept-Encoding).");
        w.line("gzip_types *;", "By default only HTML is compressed.");
        w.line(&format!("gzip_comp_level {level};"), "");
    }
    if let Some(rate) = proxy.response_rate {
        w.line(
            &format!("limit_rate {rate};"),
            "Bytes per second of each response, as a slow link has.",
        );
    }
    if let Some(cache) = proxy.cache {
        cache_storage(&mut w, proxy, cache);
    }
    upstream(&mut w, proxy);
    server(&mut w, proxy);
    w.close();
    w.text()
}

/// Writes the settings of the process and its workers.
fn process(w: &mut Writer, proxy: &NginxProxy) {
    if proxy.as_root {
        w.line(
            "user root;",
            "With root, workers would run as \"nobody\", which cannot enter root's folder. On a \
             shared machine, use a dedicated user.",
        );
    }
    let workers = proxy.workers.map_or_else(|| "auto".to_owned(), |n| n.to_string());
    w.line(
        &format!("worker_processes {workers};"),
        if proxy.workers.is_none() { "As many as there are CPUs." } else { "" },
    );
    w.line(
        &format!("worker_rlimit_nofile {WORKER_FILES};"),
        "Each connection is an open file, and a request has two: the client's and the backend's.",
    );
    w.line(
        &format!("pid {};", in_folder(proxy, "nginx.pid")),
        "All that nginx writes is in one folder.",
    );
    w.line("error_log stderr warn;", "Errors go to the terminal that started it.");
    w.open("events", "");
    w.line(
        &format!("worker_connections {WORKER_CONNECTIONS};"),
        "To clients and backends together, per worker.",
    );
    w.line("multi_accept on;", "A worker that wakes takes all new connections, not one.");
    w.close();
}

/// Writes log and temporary files.
fn files(w: &mut Writer, proxy: &NginxProxy) {
    match (proxy.access_log, proxy.profile) {
        (false, _) => w.line(
            "access_log off;",
            "A log line per request has a cost, which is measured separately.",
        ),
        (true, ProxyProfile::Published) => {
            w.line(&format!("access_log {};", quoted(&proxy.access_log_file())), "")
        }
        (true, ProxyProfile::Tuned) => w.line(
            &format!(
                "access_log {} combined buffer=64k flush=1s;",
                quoted(&proxy.access_log_file())
            ),
            "Written in blocks of 64 kB; a line waits for at most a second.",
        ),
    }
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        w.line(&format!("{kind}_temp_path {};", in_folder(proxy, kind)), "");
    }
}

fn buffers(w: &mut Writer, profile: ProxyProfile) {
    match profile {
        ProxyProfile::Published => w.line(
            "proxy_buffers 32 4m;",
            "The published settings: 128 MB per response, allocated and freed page by page.",
        ),
        ProxyProfile::Tuned => {
            w.line("proxy_buffer_size 16k;", "Header and beginning of a response.");
            w.line(
                "proxy_buffers 32 16k;",
                "512 kB: a response of 340 kB fits, so the backend is free at once.",
            );
            w.line(
                "proxy_max_temp_file_size 0;",
                "Larger responses wait at the backend, not on the disk. The cache has its own \
                 files.",
            );
        }
    }
}

/// Writes the map to the id by which requests are distributed.
fn record(w: &mut Writer) {
    w.open(
        "map $uri $record",
        "The last path segment names the record; without one, the whole path is hashed.",
    );
    w.line(r#""~/(?<id>[^/]+)/?$" $id;"#, "");
    w.line("default $uri;", "");
    w.close();
}

fn cache_storage(w: &mut Writer, proxy: &NginxProxy, cache: Cache) {
    w.line(
        &format!(
            "proxy_cache_path {} levels=1:2 keys_zone=answers:10m max_size=256m inactive=10m \
             use_temp_path=off;",
            in_folder(proxy, "cache")
        ),
        "10 MB of keys (80,000 responses), 256 MB of responses; unused ones are removed after 10 \
         minutes.",
    );
    if cache.lifetime == CacheLifetime::Fixed {
        age::short_lived(w, cache.ttl_s);
    }
}

fn upstream(w: &mut Writer, proxy: &NginxProxy) {
    w.open("upstream backends", "");
    if proxy.profile == ProxyProfile::Tuned && proxy.backends.len() > 1 {
        w.line(
            "zone backends 64k;",
            "Workers share the rotation and the state of backends; without it, each knows only its \
             own requests.",
        );
    }
    match proxy.balance {
        Balance::RoundRobin | Balance::Weights => {}
        Balance::LeastConnections => w.line(
            "least_conn;",
            "To the backend with the fewest requests in progress, relative to its weight.",
        ),
        Balance::HashOnId => w.line(
            "hash $record consistent;",
            "Each record always goes to the same backend. When a backend is removed, only its \
             records move.",
        ),
        Balance::ModuloOnId => w.line(
            "hash $record;",
            "Each record always goes to the same backend, until the list of backends changes: then \
             nearly all move.",
        ),
        Balance::IpHash => w.line(
            "ip_hash;",
            "Each client address always goes to the same backend; clients behind one address share \
             it.",
        ),
    }
    for server in servers(proxy) {
        w.line(&server, "");
    }
    if let Some(n) = proxy.upstream_keepalive {
        w.line(
            &format!("keepalive {n};"),
            "Idle connections per worker: no handshake and no new port per request.",
        );
        w.line(&format!("keepalive_requests {KEEPALIVE_REQUESTS};"), "");
    }
    w.close();
}

fn server(w: &mut Writer, proxy: &NginxProxy) {
    w.open("server", "");
    let tls = if proxy.tls.is_some() { " ssl" } else { "" };
    w.line(
        &format!("listen 127.0.0.1:{}{tls};", proxy.listen),
        "Reachable from this machine only.",
    );
    if let Some(tls) = &proxy.tls {
        w.line(&format!("ssl_certificate {};", quoted(&tls.certificate)), "");
        w.line(&format!("ssl_certificate_key {};", quoted(&tls.key)), "");
        w.line("ssl_protocols TLSv1.2 TLSv1.3;", "");
        w.line(
            "ssl_session_cache shared:tls:10m;",
            "A returning client resumes its session at any worker.",
        );
    }
    w.open("location /", "");
    w.line("proxy_pass http://backends;", "");
    w.line(
        "proxy_set_header Host $host;",
        "Backends receive the client's host name, which is also in the cache key.",
    );
    to_backends(w, proxy);
    if !proxy.failover.retry {
        w.line(
            "proxy_next_upstream off;",
            "A failed attempt is the client's answer; by default another backend is tried.",
        );
    }
    if let Some(cache) = proxy.cache {
        caching(w, proxy.profile, cache);
    }
    w.close();
    w.close();
}

/// Writes the protocol between nginx and the backends.
fn to_backends(w: &mut Writer, proxy: &NginxProxy) {
    match (proxy.upstream_keepalive, proxy.profile) {
        (Some(_), _) => {
            w.line("proxy_http_version 1.1;", "HTTP/1.0 cannot keep a connection.");
            w.line(
                "proxy_set_header Connection \"\";",
                "By default nginx asks the backend to close it.",
            );
        }
        (None, ProxyProfile::Tuned) => w.line(
            "proxy_http_version 1.1;",
            "Responses of unknown length are chunked, so truncation is detected.",
        ),
        (None, ProxyProfile::Published) => {
            w.line(
                "proxy_http_version 1.0;",
                "The default before nginx 1.29.7: a new connection for each request.",
            );
        }
    }
}

/// Writes the cache of a location.
fn caching(w: &mut Writer, profile: ProxyProfile, cache: Cache) {
    w.line("proxy_cache answers;", "");
    w.line("proxy_cache_methods GET HEAD;", "POST is never cached.");
    w.line(
        "proxy_cache_key \"$request_method $scheme://$host$request_uri\";",
        "Two requests share a response only if all of these are equal.",
    );
    w.line(
        &format!("proxy_cache_valid 200 {}s;", cache.ttl_s),
        match cache.lifetime {
            CacheLifetime::Fixed => {
                "Every 200 is cached this long. nginx counts whole seconds: up to one more."
            }
            CacheLifetime::FromBackend => {
                "Only for responses without Cache-Control; otherwise that decides."
            }
        },
    );
    match cache.lifetime {
        CacheLifetime::Fixed => age::fixed(w),
        CacheLifetime::FromBackend => age::from_backend(w),
    }
    if profile == ProxyProfile::Tuned {
        w.line(
            "proxy_cache_lock on;",
            "Of concurrent requests for a missing response, one goes to the backend and the others \
             wait.",
        );
        w.line(
            "proxy_cache_lock_timeout 5s;",
            "They wait at most this long, then go to the backend too.",
        );
    }
    w.line(
        "proxy_pass_header Date;",
        "nginx sends no Age. With the backend's own Date a cache behind it (a browser) still knows \
         how old the answer is: with a new Date, one of yesterday evening with max-age until \
         midnight would live far into the next day.",
    );
    w.line(
        "add_header X-Cache-Status $upstream_cache_status always;",
        "HIT, MISS, EXPIRED, STALE, UPDATING: the cache's result.",
    );
}

fn in_folder(proxy: &NginxProxy, name: &str) -> String {
    quoted(&proxy.folder.join(name))
}
