#!/usr/bin/env python3
"""Cost of a cached read with a credential, over TLS and over HTTP/2: with an API key and with a
token beside none, and the transports beside nginx answering from its cache, interleaved.
"""

import argparse
import base64
import json
import os
import random
import ssl
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.realpath(os.path.join(os.path.dirname(__file__), "..")))

from lib import cli, data, forms, h2load, openssl, report, stats, subjects, wrk  # noqa: E402
from lib.forms import CPU, Form  # noqa: E402
from lib.process import Failed  # noqa: E402

IDS = 1_000
STREAMS = [1, 16]
CREDENTIALS = ["plain", "key", "token"]
TRANSPORTS = ["tls", *(f"http2-{streams}" for streams in STREAMS)]
AIM_KEY, AIM_TOKEN, AIM_NGINX = 1.05, 1.10, 0.8
TOKEN_LIFETIME_S = 86_400

ACCESS = """\
[limits.rate.clients]
rate = "10000000/s"
[access.roles.reader]
collections = ["products"]
[access.keys.bench]
id = "{id}"
sha256 = "{sha256}"
roles = ["reader"]
[access.jwt]
issuer = "https://id.example/"
audience = "hotrow"
jwks_file = "{jwks}"
"""
TLS = """\
[listen.tls]
cert = "{folder}/cert.pem"
key = "{folder}/key.pem"
"""
# As in lib/subjects.py, over TLS and HTTP/2.
NGINX_CONF = """\
{user}worker_processes 1;
pid {prefix}/nginx.pid;
error_log {prefix}/error.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    tcp_nodelay on;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    client_body_temp_path {prefix}/body;
    proxy_temp_path {prefix}/proxy;
    fastcgi_temp_path {prefix}/fastcgi;
    uwsgi_temp_path {prefix}/uwsgi;
    scgi_temp_path {prefix}/scgi;
    open_file_cache max=20000 inactive=1d;
    open_file_cache_valid 1d;
    proxy_cache_path {cache} levels=1:2 keys_zone=products:32m inactive=1d max_size=1g
        use_temp_path=off;
    upstream backend {{ server 127.0.0.1:{backend}; keepalive 16; }}
    server {{
        listen 127.0.0.1:{port} ssl http2 backlog=1024;
        ssl_certificate {certificates}/cert.pem;
        ssl_certificate_key {certificates}/key.pem;
        ssl_protocols TLSv1.3;
        ssl_session_cache shared:sessions:10m;
        http2_max_concurrent_streams 128;
        location / {{
            proxy_pass http://backend;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_cache products;
            proxy_cache_key $uri;
            proxy_cache_valid 200 1d;
            proxy_ignore_headers Cache-Control Expires Vary;
            add_header X-Cache-Status $upstream_cache_status;
        }}
    }}
}}
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    known = [*CREDENTIALS, *TRANSPORTS]
    parser.add_argument(
        "--forms",
        type=cli.some_of(known),
        default=",".join(known),
        help=f"comma-separated, of {', '.join(known)}",
    )
    cli.add_measurement(parser, rounds=9, seconds=2, unit="form and round")
    return parser.parse_args()


def encoded(raw):
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def make_token(folder):
    """Writes a JWKS with an RSA key of 2,048 bits; returns a token that it verifies."""
    key = os.path.join(folder, "issuer.pem")
    openssl.run("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key)
    modulus = openssl.run("rsa", "-in", key, "-modulus", "-noout").decode().strip()
    modulus = bytes.fromhex(modulus.removeprefix("Modulus="))
    public = {"kty": "RSA", "kid": "bench", "alg": "RS256", "n": encoded(modulus), "e": "AQAB"}
    with open(os.path.join(folder, "jwks.json"), "w") as file:
        json.dump({"keys": [public]}, file)
    head = {"alg": "RS256", "kid": "bench", "typ": "JWT"}
    claims = {
        "iss": "https://id.example/",
        "aud": "hotrow",
        "sub": "bench",
        "exp": int(time.time()) + TOKEN_LIFETIME_S,
        "roles": ["reader"],
    }
    signed = ".".join(encoded(json.dumps(part).encode()) for part in (head, claims))
    signature = openssl.run("dgst", "-sha256", "-sign", key, data=signed.encode())
    return f"{signed}.{encoded(signature)}"


def make_key():
    command = [subjects.hotrow_binary(), "key", "new", "--name", "bench", "--json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


class Field:
    """All running subjects, with the same records in their caches."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.forms, self.processes = {}, {}
        ids = random.Random(args.seed).sample(range(1, IDS + 1), IDS)
        self.ids, self.paths = ids, [f"/products/{number}" for number in ids]
        self.database = os.path.join(folder, "products.db")
        data.generate(self.database, 10_000, 319)

    def start(self):
        plain = self._keep(subjects.start_hotrow(self.folder, self.database))
        subjects.capture(plain.port, self.ids)
        if "plain" in self.args.forms:
            self.forms["plain"] = Form(plain, self._wrk("plain", None))
        if {"key", "token"} & set(self.args.forms):
            self._start_credentials()
        if set(TRANSPORTS) & set(self.args.forms):
            self._start_transports(plain)

    def _keep(self, process):
        self.processes[process.name] = process
        return process

    def _wrk(self, name, credential):
        path = os.path.join(self.folder, f"{name}.requests")
        more = [f"Authorization: Bearer {credential}"] if credential else []
        wrk.write_requests(path, [("GET", one, "", *more) for one in self.paths])
        return path

    def _start_credentials(self):
        key, token = make_key(), make_token(self.folder)
        access = ACCESS.format(
            id=key["id"], sha256=key["sha256"], jwks=os.path.join(self.folder, "jwks.json")
        )
        for name, credential in (("key", key["key"]), ("token", token)):
            process = self._keep(
                subjects.start_hotrow(
                    self.folder, self.database, name=f"hotrow-{name}", more=access
                )
            )
            refused = subjects.status(process.port, self.paths[0])
            if refused != 401:
                raise Failed(f"a request without a credential gets {refused}, not 401")
            form = Form(process, self._wrk(name, credential))
            # Reads every id.
            wrk.load(process.port, form.requests, 1)
            self.forms[name] = form

    def _start_transports(self, plain):
        openssl.make_certificate(self.folder)
        hotrow = self._keep(
            subjects.start_hotrow(
                self.folder,
                self.database,
                name="hotrow-tls",
                listen="http2 = true",
                more=TLS.format(folder=self.folder),
            )
        )
        nginx = self._keep(
            subjects.start_nginx_configured(
                self.folder,
                "nginx-tls",
                NGINX_CONF,
                cache=os.path.join(self.folder, "nginx-tls", "cache"),
                backend=plain.port,
                certificates=self.folder,
            )
        )
        self._check_hits(hotrow, "Hotrow-Cache", "hit")
        self._check_hits(nginx, "X-Cache-Status", "HIT")
        for name, process in (("hotrow", hotrow), ("nginx", nginx)):
            urls = os.path.join(self.folder, f"{name}.urls")
            h2load.write_urls(urls, process.port, self.paths)
            for form in TRANSPORTS:
                if form in self.args.forms:
                    streams = int(form.rpartition("-")[2]) if form != "tls" else None
                    self.forms[f"{form}, {name}"] = Form(
                        process, urls, load=h2load.load, streams=streams
                    )

    def _check_hits(self, process, field, expected):
        """Reads every id until it is answered from memory."""
        context = ssl.create_default_context(cafile=os.path.join(self.folder, "cert.pem"))
        for path in self.paths:
            url = f"https://127.0.0.1:{process.port}{path}"
            for _ in range(3):
                with urllib.request.urlopen(url, context=context, timeout=10) as answer:
                    seen = answer.headers[field]
                if seen == expected:
                    break
            else:
                raise Failed(f"{process.name}: {path} has {field}: {seen} after three reads")


def verdicts_of(rounds):
    pairs = [
        ("API key and limits / neither, CPU per request", "key", "plain", AIM_KEY),
        ("known token and limits / neither, CPU per request", "token", "plain", AIM_TOKEN),
    ]
    for form in TRANSPORTS:
        figure = f"{form}: hotrow / nginx, CPU per request"
        pairs.append((figure, f"{form}, hotrow", f"{form}, nginx", AIM_NGINX))
    verdicts = []
    for figure, form, reference, aim in pairs:
        if form in rounds and reference in rounds:
            values = [[result[CPU] for result in rounds[name]] for name in (form, reference)]
            ratio = stats.ratio(*values)
            interval = (ratio["low"], ratio["high"])
            verdicts.append(report.verdict(figure, ratio["median"], aim, interval=interval))
    return verdicts


def main():
    def ciphers(results):
        return ", ".join(sorted({result.get("cipher") or "" for result in results}))

    return forms.run("access", arguments(), Field, verdicts_of, "cipher", ciphers)


if __name__ == "__main__":
    cli.run(main)
