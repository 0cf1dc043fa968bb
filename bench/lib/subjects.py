"""Build and start of the subjects: hotrow, the floor, Gin with Ristretto, nginx."""

import hashlib
import os
import shutil
import subprocess
import time

from lib import data, host
from lib.http import Connection
from lib.process import Failed, Process, free_port

BENCH = os.path.join(host.REPOSITORY, "bench")
DATE_BYTES = 29
READY_TIMEOUT_S = 30


def _run(command, cwd, environment=None):
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(environment or {})}, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise Failed(f"`{' '.join(command)}` in {cwd} failed:\n{done.stderr[-2000:]}")


def _target(default):
    return os.environ.get("CARGO_TARGET_DIR") or default


def hotrow_binary():
    """Returns the binary to measure, or None: $HOTROW, else release/hotrow in the target folder."""
    configured = os.environ.get("HOTROW")
    path = configured or os.path.join(
        _target(os.path.join(host.REPOSITORY, "target")), "release", "hotrow"
    )
    if configured and not os.path.exists(path):
        raise Failed(f"HOTROW={path} does not exist")
    return path if os.path.exists(path) else None


def build(name):
    """Builds a crate of the bench workspace: `floor`, `library` or `known-limit`."""
    _run(["cargo", "build", "--release", "--locked", "-p", name], BENCH)
    return os.path.join(_target(os.path.join(BENCH, "target")), "release", name)


def build_gin(folder):
    binary = os.path.join(folder, "gin-ristretto")
    _run(
        ["go", "build", "-o", binary, "."],
        os.path.join(BENCH, "serve", "gin"),
        {"GOFLAGS": "-mod=mod", "CGO_ENABLED": "1"},
    )
    return binary


def build_pgx(folder):
    binary = os.path.join(folder, "pgx-service")
    _run(
        ["go", "build", "-o", binary, "."],
        os.path.join(BENCH, "serve", "pgx"),
        {"CGO_ENABLED": "0"},
    )
    return binary


HOTROW_TOML = """\
[listen]
data = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
workers = {workers}
{listen}
[source]
url = "{url}"
{source}
[cache]
capacity = "{capacity}"
[collections.products]
table = "products"
key = "id"
{more}
"""

# A budget per client that is never used up: each request is counted and none is refused.
LIMITS = """\
[limits.rate.clients]
rate = "10000000/s"
"""


def start_hotrow(
    folder,
    database,
    capacity="256MiB",
    name="hotrow",
    core=0,
    more="",
    listen="",
    binary=None,
):
    """Starts hotrow over a SQLite file, watched with triggers: one worker on one core."""
    source = 'watch = "triggers"'
    url = f"sqlite:{database}"
    return start_hotrow_over(
        folder, url, capacity, name, core, source=source, more=more, listen=listen, binary=binary
    )


def start_hotrow_over(
    folder,
    url,
    capacity="256MiB",
    name="hotrow",
    core=0,
    workers=1,
    source="",
    more="",
    listen="",
    binary=None,
):
    """Starts hotrow and waits until it is ready.

    `source`, `listen`: more lines of these sections; `more`: more sections. The result's
    `admin_port` is the admin listener's.
    """
    port, admin = free_port(), free_port()
    config = HOTROW_TOML.format(
        port=port,
        admin=admin,
        url=url,
        capacity=capacity,
        workers=workers,
        source=source,
        more=more,
        listen=listen,
    )
    return start_configured(folder, config, port, admin, name, core, binary)


def start_configured(folder, config, port, admin, name="hotrow", core="0-1", binary=None):
    """Starts hotrow with a whole configuration, which contains these ports, and waits until it is
    ready.
    """
    binary = binary or hotrow_binary()
    if binary is None:
        raise Failed(
            "there is no hotrow to measure: run `cargo build --release`, or set HOTROW to the "
            "binary"
        )
    path = os.path.join(folder, f"{name}.toml")
    with open(path, "w") as file:
        file.write(config)
    process = Process(name, [binary, "serve", "--config", path], port, folder, core)
    process.admin_port = admin
    _await_ready(process)
    return process


def _await_ready(process):
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        connection = Connection(process.admin_port)
        answer = connection.get("/readyz")
        connection.close()
        if answer.status == 200:
            return
        if time.monotonic() > deadline:
            process.end()
            raise Failed(
                f"{process.name} is not ready after {READY_TIMEOUT_S} s: {answer.body[:500]!r}"
            )
        time.sleep(0.02)


def start_pgx(folder, url, pool, core):
    port = free_port()
    command = [build_pgx(folder), "-listen", f"127.0.0.1:{port}", "-url", url, "-pool", str(pool)]
    return Process("pgx", command, port, folder, core)


def start_replayer(name, folder, records):
    """Starts `floor` or `library`, which answer from a file of records."""
    port = free_port()
    return Process(name, [build(name), f"127.0.0.1:{port}", records], port, folder)


def start_gin(folder, binary, database, position):
    port = free_port()
    command = [binary, "-listen", f"127.0.0.1:{port}", "-database", database, "-position", position]
    return Process(
        "gin", command, port, folder, environment={"GOMAXPROCS": "1", "GIN_MODE": "release"}
    )


# Settings that affect the CPU time of a hit are those that an operator would choose: no access log,
# no time-outs of kept connections within a run, cache files in memory, keys in shared memory.
NGINX_CONF = """\
{user}worker_processes 1;
pid {prefix}/nginx.pid;
error_log {prefix}/error.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    tcp_nodelay on;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    client_body_temp_path {prefix}/body;
    proxy_temp_path {prefix}/proxy;
    fastcgi_temp_path {prefix}/fastcgi;
    uwsgi_temp_path {prefix}/uwsgi;
    scgi_temp_path {prefix}/scgi;
    {open_file_cache}
    proxy_cache_path {cache} levels=1:2 keys_zone=products:32m inactive=1d max_size=1g
        use_temp_path=off;
    map $http_bench_probe $probed {{ default ""; 1 $upstream_cache_status; }}
    upstream backend {{ server 127.0.0.1:{backend}; keepalive 16; }}
    server {{
        listen 127.0.0.1:{port} backlog=1024;
        location / {{
            proxy_pass http://backend;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_cache products;
            proxy_cache_key $uri;
            proxy_cache_valid 200 1d;
            proxy_ignore_headers Cache-Control Expires Vary;
            add_header X-Cache-Status $probed;
        }}
    }}
}}
"""
OPEN_FILE_CACHE = "open_file_cache max=20000 inactive=1d; open_file_cache_valid 1d;"


def start_nginx(folder, backend_port, name="nginx", open_files=False):
    """Starts an nginx with its cache in memory."""
    return start_nginx_configured(
        folder,
        name,
        NGINX_CONF,
        cache=os.path.join(folder, name, "cache"),
        backend=backend_port,
        open_file_cache=OPEN_FILE_CACHE if open_files else "",
    )


def start_nginx_configured(folder, name, configuration, **values):
    """Starts a private nginx in the foreground, with its own prefix and pid file. `configuration`
    is formatted with `user`, `prefix`, `port` and `values`.
    """
    prefix = os.path.join(folder, name)
    os.makedirs(prefix)
    port = free_port()
    user = "user root;\n" if os.geteuid() == 0 else ""
    path = os.path.join(prefix, "nginx.conf")
    with open(path, "w") as file:
        file.write(configuration.format(user=user, prefix=prefix, port=port, **values))
    binary = shutil.which("nginx") or "/usr/sbin/nginx"
    return Process(name, [binary, "-p", prefix, "-c", path, "-g", "daemon off;"], port, folder)


def status(port, path):
    """Returns the status of one request."""
    connection = Connection(port)
    answer = connection.get(path)
    connection.close()
    return answer.status


def capture(port, ids):
    """Returns the answers of a running hotrow to cached reads, byte by byte: {id: Answer}."""
    connection = Connection(port)
    answers = {}
    for number in ids:
        for _ in range(3):
            answer = connection.get(f"/products/{number}")
            if answer.status != 200:
                raise Failed(f"/products/{number} answers {answer.head!r} {answer.body[:200]!r}")
            if answer.header("hotrow-cache") == "hit":
                break
        else:
            raise Failed(f"/products/{number} is not cached after three reads: {answer.head!r}")
        answers[number] = answer
    connection.close()
    return answers


def synthetic(ids, body_bytes):
    """Returns answers like those of hits, for runs without hotrow: the same fields with similar
    values.
    """
    from lib.http import Answer

    answers = {}
    for number in ids:
        body = data.as_json(data.product(number, body_bytes))
        tag = hashlib.blake2b(body, digest_size=8).hexdigest()
        head = (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            f'etag: "{tag}"\r\ncache-control: no-cache\r\n'
            "age: 0\r\nhotrow-cache: hit\r\nhotrow-position: 6f1d2c3b4a5e6978-1000\r\n"
            f"content-length: {len(body)}\r\n"
            f"date: Fri, 01 Jan 2021 00:00:00 GMT\r\n\r\n"
        )
        answers[number] = Answer(200, head.encode(), body)
    return answers


def write_records(path, answers):
    """Writes the floor's file: per record a line `ID HEAD_BYTES BODY_BYTES DATE_AT`, head and body,
    a newline.
    """
    with open(path, "wb") as file:
        for number, answer in answers.items():
            date_at = answer.head.lower().find(b"\r\ndate: ")
            if date_at < 0:
                raise Failed(f"an answer without a date cannot be replayed: {answer.head!r}")
            date_at += len(b"\r\ndate: ")
            file.write(f"{number} {len(answer.head)} {len(answer.body)} {date_at}\n".encode())
            file.write(answer.head + answer.body + b"\n")


def without_date(head):
    at = head.lower().find(b"\r\ndate: ") + len(b"\r\ndate: ")
    return head[:at] + head[at + DATE_BYTES :]
