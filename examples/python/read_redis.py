#!/usr/bin/env python3
"""Reads records over the Redis protocol with redis-py: read_redis.py KEY... See ../README.md."""

import json
import os
import sys

import redis


def main():
    url = os.environ.get("HOTROW_REDIS_URL", "redis://127.0.0.1:6379")
    # The API key or token is the password of the user "default".
    client = redis.Redis.from_url(url, password=os.environ.get("HOTROW_KEY"), protocol=3)
    keys = sys.argv[1:]
    try:
        records = client.mget(keys)
    except redis.RedisError as error:
        # The first word says what to do: see docs/redis.md.
        sys.exit(f"{type(error).__name__}: {error}")
    for key, record in zip(keys, records, strict=True):
        print(key, json.loads(record) if record else "missing")


if __name__ == "__main__":
    main()
