"""N threads: of Python itself (the interpreter's lock lets one run), or hashing (which gives the lock up); and some that wait."""
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

for _ in range(int(sys.argv[4]) if len(sys.argv) > 4 else 0):
    threading.Thread(target=threading.Event().wait).start()
for _ in range(n):
    threading.Thread(target=work).start()
