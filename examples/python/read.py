#!/usr/bin/env python3
"""Reads a record twice: read.py COLLECTION ID. See ../README.md."""

import gzip
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request


class Client:
    """Reads records, and remembers the newest position that it has seen."""

    def __init__(self, url, key=None):
        self.url = url
        self.key = key
        self.position = None

    def get(self, collection, record_id, etag=None):
        """Returns a record and its entity tag; None in place of the record if the tag is still its
        own. Raises urllib.error.HTTPError."""
        path = f"/{collection}/{urllib.parse.quote(record_id, safe='')}"
        request = urllib.request.Request(self.url + path)
        request.add_header("Accept-Encoding", "gzip")
        if self.key:
            request.add_header("Authorization", f"Bearer {self.key}")
        if self.position:
            request.add_header("Hotrow-Min-Position", self.position)
        if etag:
            request.add_header("If-None-Match", etag)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                self.position = answer.headers["Hotrow-Position"]
                body = answer.read()
                if answer.headers["Content-Encoding"] == "gzip":
                    body = gzip.decompress(body)
                return json.loads(body), answer.headers["ETag"]
        except urllib.error.HTTPError as error:
            if error.code != 304:
                raise
            self.position = error.headers["Hotrow-Position"]
            return None, etag


def main():
    collection, record_id = sys.argv[1:]
    url = os.environ.get("HOTROW_URL", "http://127.0.0.1:8080")
    client = Client(url, os.environ.get("HOTROW_KEY"))
    try:
        record, etag = client.get(collection, record_id)
        print(json.dumps(record))
        print(f"position {client.position}")
        again, _ = client.get(collection, record_id, etag)
    except urllib.error.HTTPError as error:
        sys.exit(f"{error.code}: {json.load(error)['title']}")
    print("unchanged" if again is None else json.dumps(again))


main()
