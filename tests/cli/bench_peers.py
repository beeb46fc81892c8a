#!/usr/bin/env python3
"""Scripts of bench/peers find our programs in MS_BIN, in build/bin of the checkout, or on the PATH, and otherwise end at once
with one line."""
import os
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.environ["MS_SOURCE"]


def ask(folder, **environment):
    code = "import peers; peers.need('os', programs=('mstrain', 'msckpt')); print(peers.binary('mstrain'))"
    plain = {"PATH": os.path.join(folder, "path")}
    return subprocess.run([sys.executable, "-c", code], cwd=os.path.join(folder, "bench/peers"), env={**plain, **environment},
                          capture_output=True, text=True, check=False)


def add_programs(folder):
    os.makedirs(folder)
    for name in ("mstrain", "msckpt", "msdata"):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n")
        os.chmod(path, 0o755)


def main():
    failures = 0

    def expect(condition, what, ran):
        nonlocal failures
        if not condition:
            failures += 1
            print(f"FAILED: {what}\n{ran.stdout}{ran.stderr}")

    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        os.makedirs(os.path.join(folder, "bench/peers"))
        shutil.copy(os.path.join(SOURCE, "bench/peers/peers.py"), os.path.join(folder, "bench/peers"))
        ran = ask(folder)
        expect(ran.returncode == 1 and len(ran.stderr.splitlines()) == 1 and "build/bin" in ran.stderr and "MS_BIN" in ran.stderr,
               "nowhere: one line with the cure", ran)
        for place in ("path", "build/bin"):
            add_programs(os.path.join(folder, place))
            ran = ask(folder)
            expect(ran.stdout.strip() == os.path.join(folder, place, "mstrain"), f"found in {place}", ran)
        ran = ask(folder, MS_BIN=os.path.join(folder, "other"))
        expect(ran.returncode == 1 and "MS_BIN=" in ran.stderr, "MS_BIN alone counts where it is set", ran)
        add_programs(os.path.join(folder, "other"))
        ran = ask(folder, MS_BIN=os.path.join(folder, "other"))
        expect(ran.stdout.strip() == os.path.join(folder, "other/mstrain"), "found in MS_BIN", ran)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
