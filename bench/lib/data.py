"""SQLite databases with the table `products`, and their rows as the JSON of every subject."""

import json
import os
import sqlite3

COLUMNS = ["id", "sku", "name", "category", "price_cents", "stock", "revision", "description"]
WORDS = (
    "durable light quiet compact foldable washable solid oak "
    "steel linen blue grey green warm bright simple"
).split()
ROWS_PER_INSERT = 5_000


def product(number, body_bytes):
    """Returns row `number` (from 1), whose JSON has exactly `body_bytes` bytes."""
    row = [
        number,
        f"SKU-{number:08d}",
        f"{WORDS[number % 16].title()} product {number}",
        WORDS[number * 7 % 16],
        100 + number * 37 % 99_900,
        number * 13 % 1_000,
        0,
        "",
    ]
    missing = body_bytes - len(as_json(row))
    if missing < 0:
        raise ValueError(
            f"row {number} takes at least {body_bytes - missing} bytes as JSON, not {body_bytes}"
        )
    text, at = [], number
    length = 0
    while length < missing:
        text.append(WORDS[at % 16])
        length += len(text[-1]) + 1
        at = at * 31 + 7
    row[7] = " ".join(text)[:missing].ljust(missing, ".")
    return row


def as_json(row):
    return json.dumps(dict(zip(COLUMNS, row)), separators=(",", ":")).encode()


def generate(path, count, body_bytes):
    """Writes `count` products to a new WAL database."""
    for ending in ("", "-wal", "-shm"):
        if os.path.exists(path + ending):
            os.remove(path + ending)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = OFF")
    db.execute(
        "CREATE TABLE products (id INTEGER PRIMARY KEY, sku TEXT NOT NULL, name TEXT NOT NULL,"
        " category TEXT NOT NULL, price_cents INTEGER NOT NULL, stock INTEGER NOT NULL,"
        " revision INTEGER NOT NULL, description TEXT NOT NULL)"
    )
    for start in range(1, count + 1, ROWS_PER_INSERT):
        rows = (
            product(n, body_bytes) for n in range(start, min(start + ROWS_PER_INSERT, count + 1))
        )
        db.execute("BEGIN")
        db.executemany("INSERT INTO products VALUES (?,?,?,?,?,?,?,?)", rows)
        db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def generate_small(path, count):
    """Writes many small records: `{"id":N,"value":N}`."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = OFF")
    db.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, value INTEGER NOT NULL)")
    db.execute("BEGIN")
    db.executemany(
        "INSERT INTO products VALUES (?,?)", ((n, n * 7 % 1_000) for n in range(1, count + 1))
    )
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
