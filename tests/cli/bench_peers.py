#!/usr/bin/env python3
"""Scripts of bench/ find our programs in MS_BIN, in build/bin of the checkout, or on the PATH, and their own in build/bench, and
otherwise end at once with one line."""
import os
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.environ["MS_SOURCE"]


# Scripts that need nothing but ours, and what each must find before it does anything.
SCRIPTS = {
    "convert/convert_speed.py --gib 0.01": "msckpt", "convert/matrix.py --gib 0.01": "msckpt",
    "convert/deepseek_671b.py --layers 1 --dry-run-only": "msckpt",
    "profile/idle_explained.py FOLDER": "msprof", "profile/report_paint.py": "msprof", "profile/traces.py FILE": "msprof",
    "train/profile_cost.py": "bench.core.trace.span", "train/save_cost.py": "bench.ckpt.ceiling",
    "train/single_rank.py --only gemm": "bench.kernels.gemm", "train/single_rank.py --only step": "mstrain",
    "train/single_rank.py --only mixture": "bench.train.ops.experts",
}


def run(folder, words, **environment):
    """In an empty folder, with nothing of ours on the PATH."""
    empty = os.path.join(folder, "empty")
    os.makedirs(empty, exist_ok=True)
    return subprocess.run([sys.executable, *words], cwd=empty, capture_output=True, text=True, check=False,
                          env={"PATH": os.path.join(folder, "path"), "TMPDIR": empty, **environment})


def ask(folder, expression="peers.need('os', programs=('mstrain', 'msckpt')) or peers.binary('mstrain')", **environment):
    code = f"import sys; sys.path.insert(0, {os.path.join(folder, 'bench/peers')!r}); import peers; print({expression})"
    return run(folder, ["-c", code], **environment)


def add_programs(folder, *names):
    os.makedirs(folder)
    for name in names or ("mstrain", "msckpt", "msdata"):
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
        for part in ("bench", "tests/cli", "tests/support"):
            shutil.copytree(os.path.join(SOURCE, part), os.path.join(folder, part))
        for script, program in SCRIPTS.items():
            name, *words = script.split()
            ran = run(folder, [os.path.join(folder, "bench", name), *words])
            expect(ran.returncode == 1 and not ran.stdout and len(ran.stderr.splitlines()) == 1
                   and ran.stderr.startswith(f"{program} is not in {folder}/build/{'bench' if program.startswith('bench.') else 'bin'}")
                   and f"--target {program}" in ran.stderr, f"{script} without programs: one line that names {program}", ran)
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
        speed = "peers.benchmark('bench.speed')"
        ran = ask(folder, speed)
        expect(ran.returncode == 1 and len(ran.stderr.splitlines()) == 1 and "MS_BUILD_BENCH=ON" in ran.stderr and "MS_BENCH" in ran.stderr,
               "no benchmark: one line with the cure", ran)
        for place, environment in (("build/bench", {}), ("far/bench", {"MS_BUILD": os.path.join(folder, "far")}),
                                   ("far/bench", {"MS_BIN": os.path.join(folder, "far/bin")}),
                                   ("timed", {"MS_BENCH": os.path.join(folder, "timed")})):
            if not os.path.isdir(os.path.join(folder, place)):
                add_programs(os.path.join(folder, place), "bench.speed")
            ran = ask(folder, speed, **environment)
            expect(ran.stdout.strip() == os.path.join(folder, place, "bench.speed"), f"benchmark found in {place} by {environment}", ran)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
