#!/usr/bin/env python3
"""Keeps records in its own memory, which Hotrow keeps fresh (client-side caching of redis-py).
Reads keys from standard input, one a line, and prints their records. See ../README.md."""

import os
import sys

import redis
from redis.cache import CacheConfig


def main():
    url = os.environ.get("HOTROW_REDIS_URL", "redis://127.0.0.1:6379")
    client = redis.Redis.from_url(
        url,
        # The API key or token is the password of the user "default".
        password=os.environ.get("HOTROW_KEY"),
        protocol=3,
        decode_responses=True,
        cache_config=CacheConfig(max_size=10_000),
    )
    for line in sys.stdin:
        print(client.get(line.strip()) or "missing", flush=True)


if __name__ == "__main__":
    main()
