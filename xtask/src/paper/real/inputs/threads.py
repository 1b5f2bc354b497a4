"""N threads: of Python itself (the interpreter's lock lets one run), or hashing (which gives the lock up)."""
import hashlib, sys, threading
out = open(sys.argv[1], "ab", buffering=0)
n, hashes = int(sys.argv[2]), sys.argv[3] == "hash"

def work():
    x, block = 1, bytes(1 << 20)
    while True:
        if hashes:
            hashlib.sha256(block).digest()
        else:
            for _ in range(20000):
                x = (x * 31 + 7) & 0xFFFFFFFF
        out.write(b".")

for _ in range(n):
    threading.Thread(target=work).start()
