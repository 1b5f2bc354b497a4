"""A pool of four processes that is given small tasks."""
import multiprocessing, sys

def task(n):
    x = n
    for _ in range(8000):
        x = (x * 31 + 7) & 0xFFFFFFFF
    return x

if __name__ == "__main__":
    out = open(sys.argv[1], "ab", buffering=0)
    with multiprocessing.Pool(4) as pool:
        while True:
            for _ in pool.imap_unordered(task, range(400), chunksize=4):
                out.write(b".")
