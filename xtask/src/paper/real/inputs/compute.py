"""Computes; a mark for each piece."""
import sys
out = open(sys.argv[1], "ab", buffering=0)
x = 1
while True:
    for _ in range(20000):
        x = (x * 31 + 7) & 0xFFFFFFFF
    out.write(b".")
