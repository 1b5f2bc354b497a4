"""Inserts, each committed, so that each waits for the disk."""
import sqlite3, sys
out = open(sys.argv[1], "ab", buffering=0)
base = sqlite3.connect("inserts.db")
base.execute("create table t (id integer primary key, a text, b integer)")
base.execute("create index i on t (a, b)")
n = 0
while True:
    n += 1
    for k in range(20):
        base.execute("insert into t (a, b) values (?, ?)", (f"row {n * 7919 % 1009}", k))
    base.commit()
    out.write(b".")
