#!/usr/bin/env python3
"""ctest `cli.startup`: --help of a binary takes under 50 ms of processor time (median of 9 runs, not wall time)."""
import os
import statistics
import subprocess
import sys

LIMIT_S = 0.050


def cpu_seconds(command):
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def main():
    slow = False
    for name in sys.argv[1:]:
        median = statistics.median(cpu_seconds([os.path.join(os.environ["MS_BIN"], name), "--help"]) for _ in range(9))
        slow |= median >= LIMIT_S
        print(f"{name} --help: {median * 1e3:.1f} ms{' (limit %.0f)' % (LIMIT_S * 1e3) if median >= LIMIT_S else ''}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
