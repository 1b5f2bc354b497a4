"""Starts one program after the other."""
import subprocess, sys
out = open(sys.argv[1], "ab", buffering=0)
while True:
    subprocess.run(["/bin/sh", "-c", "wc -l </etc/services"], stdout=subprocess.DEVNULL)
    out.write(b".")
