"""Runs a program of Google Benchmark for scripts that put its times beside others."""
import json
import subprocess
import sys


def iterations(program, *flags):
    """A row for each repetition of each case, as --benchmark_format=json tells it; ends the script if a case failed."""
    told = subprocess.run([program, *flags, "--benchmark_format=json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    rows = [row for row in json.loads(told.stdout)["benchmarks"] if row["run_type"] == "iteration"]
    failed = [row["name"] + ": " + row["error_message"] for row in rows if row.get("error_occurred")]
    if failed:
        sys.exit("\n".join(failed))
    return rows
