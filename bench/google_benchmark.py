"""Runs a program of Google Benchmark for scripts that put its times beside others."""
import json
import subprocess
import sys
import tempfile


def iterations(program, *flags):
    """A row for each repetition of each case, as --benchmark_out tells it; ends the script if a case failed."""
    with tempfile.NamedTemporaryFile(suffix=".json") as kept:
        subprocess.run([program, *flags, f"--benchmark_out={kept.name}"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        told = json.load(kept)
    rows = [row for row in told["benchmarks"] if row["run_type"] == "iteration"]
    failed = [row["name"] + ": " + row["error_message"] for row in rows if row.get("error_occurred")]
    if failed:
        sys.exit("\n".join(failed))
    return rows
