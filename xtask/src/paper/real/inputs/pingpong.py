"""Two processes that hand one byte to and fro."""
import os, sys
out = open(sys.argv[1], "ab", buffering=0)
(a, b), (c, d) = os.pipe(), os.pipe()
if os.fork() == 0:
    while os.read(a, 1):
        os.write(d, b".")
while True:
    for _ in range(200):
        os.write(b, b".")
        os.read(c, 1)
    out.write(b".")
