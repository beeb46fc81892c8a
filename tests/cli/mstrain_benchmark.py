#!/usr/bin/env python3
"""mstrain --benchmark: on one rank and on two, as a table and as JSON, without reading data or leaving a file."""
import json
import os
import sys

import training


def main():
    with training.workplace() as place:
        before = sorted(os.listdir(place.folder))
        table = place.run("--benchmark", "--save", "saved", "--save-interval", "1", data="nowhere")
        place.expect(table.exit == 0 and "linear_wgrad" in table.stdout and "adamw" in table.stdout and "ceilings:" in table.stdout,
                     "a table of operators", table)
        ran = place.run("--benchmark", "--json", "--bf16", "--tensor-model-parallel-size", "2", ranks=2, data="nowhere")
        place.expect(ran.exit == 0, "on two ranks", ran)
        report = json.loads(ran.stdout)
        layers = {row["layer"] for row in report["operators"] if row["operator"] == "linear"}
        place.expect(report["dtype"] == "bf16" and report["num_microbatches"] == 2 and
                     layers == {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"}, "of the configured model", ran)
        left = [name for name in sorted(os.listdir(place.folder)) if name not in before and not name.startswith("notes")]
        place.expect(left == [], f"no file is left, but {left}")
        bad = place.run("--benchmark", "--automated-pipeline", "--pipeline-model-parallel-size", "2", ranks=2, data="nowhere")
        place.expect(bad.exit == 2 and "--benchmark excludes --automated-pipeline" in bad.stderr, "layers that it cannot choose", bad)
        bad = place.tool("mstrain", "--json")
        place.expect(bad.exit == 2 and len(bad.stderr.splitlines()) == 1 and "--benchmark" in bad.stderr, "--json alone is refused", bad)


if __name__ == "__main__":
    sys.exit(main())
