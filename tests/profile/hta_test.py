#!/usr/bin/env python3
"""Holistic Trace Analysis reads what msprof converts, and its temporal breakdown is ours (MS_PEERS_PYTHON; skipped without).

  hta_test.py MAKE_TRACE

The trace has whole microseconds, so HTA's rounding (ts up, end down) changes nothing and the numbers must be equal.
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/peers"))
import peers  # noqa: E402

peers.need("hta.trace_analysis")
from hta.trace_analysis import TraceAnalysis  # noqa: E402

MSPROF = os.path.join(os.environ["MS_BIN"], "msprof")


def main():
    with tempfile.TemporaryDirectory() as folder:
        traces, converted = os.path.join(folder, "traces"), os.path.join(folder, "json")
        subprocess.run([sys.argv[1], traces], check=True, capture_output=True)
        subprocess.run([MSPROF, "convert", traces, "-o", converted + "/", "--format", "json.gz"], check=True, capture_output=True)
        ours = json.loads(subprocess.run([MSPROF, "breakdown", traces, "--json"], check=True, capture_output=True).stdout)
        analyzer = TraceAnalysis(trace_dir=converted, include_last_profiler_step=True)
        table = analyzer.get_temporal_breakdown(visualize=False).set_index("rank")
        overlap = analyzer.get_comm_comp_overlap(visualize=False).set_index("rank")
    failed = 0
    for rank in ours["result"]["ranks"]:
        b, row = rank["breakdown"], table.loc[rank["rank"]]
        # Their "non compute" is what is busy and not computing.
        pairs = {"idle_time(us)": b["idle_us"], "compute_time(us)": b["computing_us"],
                 "non_compute_time(us)": b["exposed_communication_us"] + b["exposed_memory_us"], "kernel_time(us)": b["span_us"]}
        for column, value in pairs.items():
            if abs(float(row[column]) - value) > 0.01:
                print(f"FAILED rank {rank['rank']} {column}: HTA {row[column]}, msprof {value}")
                failed += 1
        theirs = float(overlap.loc[rank["rank"], "comp_comm_overlap_pctg"])
        if abs(theirs - b["overlap_pct"]) > 0.01:
            print(f"FAILED rank {rank['rank']} overlap: HTA {theirs}, msprof {b['overlap_pct']}")
            failed += 1
    print("as expected" if failed == 0 else f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
