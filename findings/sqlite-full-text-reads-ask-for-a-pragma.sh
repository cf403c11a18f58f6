#!/usr/bin/env bash
# A SELECT from a full-text table asks SQLite's authorizer for a PRAGMA, which a list of reads refuses.
#
# Package: apsw 3.54.1.0, which contains SQLite 3.54.1.
# Input: a database with an ordinary table, an FTS5 table and a view of it, opened read-only. Its
#   authorizer allows what a read is: SELECT, READ, FUNCTION and RECURSIVE.
# Guess: all three can be read.
# Seen: the ordinary table can. For the other two, FTS5 itself runs `PRAGMA data_version` while it is
#   read, the authorizer is asked for it, and the SELECT fails with "authorization denied". With this
#   one PRAGMA allowed, all three can be read.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q apsw==3.54.1.0 || exit 2
"$folder/venv/bin/python" - "$folder/shop.db" <<'PYTHON'
import sys

import apsw

FILE = sys.argv[1]
READS = {apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE}
QUERIES = (
    "SELECT name FROM products",
    "SELECT text FROM reviews WHERE reviews MATCH 'good'",
    "SELECT text FROM all_reviews",
)


def read(query, pragma):
    """Return the rows, or the error, and the PRAGMAs that the authorizer was asked for."""
    asked = []

    def authorizer(action, first, second, database, trigger):
        if action == apsw.SQLITE_PRAGMA:
            asked.append(first)
            return apsw.SQLITE_OK if first == pragma else apsw.SQLITE_DENY
        return apsw.SQLITE_OK if action in READS else apsw.SQLITE_DENY

    connection = apsw.Connection(FILE, flags=apsw.SQLITE_OPEN_READONLY)
    connection.authorizer = authorizer
    try:
        return list(connection.execute(query)), asked
    except apsw.AuthError as error:
        return str(error), asked
    finally:
        connection.close()


made = apsw.Connection(FILE)
made.execute("CREATE TABLE products (name); INSERT INTO products VALUES ('lamp')")
made.execute("CREATE VIRTUAL TABLE reviews USING fts5(text); INSERT INTO reviews VALUES ('good')")
made.execute("CREATE VIEW all_reviews AS SELECT * FROM reviews")
made.close()
print("SQLite", apsw.sqlite_lib_version())
found = []
for query in QUERIES:
    for pragma in ("", "data_version"):
        rows, asked = read(query, pragma)
        print(f"{query}; allowed PRAGMA: {pragma or 'none'}; {rows}; asked for: {asked}")
        found.append(rows)
denied = "authorization denied"
same = found == [[("lamp",)]] * 2 + [denied, [("good",)]] * 2
print("as described" if same else "changed")
sys.exit(0 if same else 1)
PYTHON
