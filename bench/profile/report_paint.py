#!/usr/bin/env python3
"""How soon the HTML report is on the screen, with a timeline of about 100,000 slices, in a headless Chromium.

  bench/profile/report_paint.py [--rounds 5] [--slices 100000]

Prints the size of the file, the time to its first contentful paint, and the time to the frame in which the timeline is drawn, both since
the page was opened from disk; medians of the rounds, each in a browser of its own. Goal: 1 s.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../tests/support"), os.path.join(HERE, "../peers")]
import headless  # noqa: E402
import make_job  # noqa: E402
import peers  # noqa: E402

PROBE = """
function answer() {
  var paint = performance.getEntriesByName('first-contentful-paint')[0];
  if (!paint) { setTimeout(answer, 20); return; }
  done(JSON.stringify({paint: paint.startTime, drawn: drawn}));
}
var drawn = 0;
requestAnimationFrame(function () { requestAnimationFrame(function () { drawn = performance.now(); answer(); }); });
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="browsers to start, one after another (default 5)")
    parser.add_argument("--slices", type=int, default=100_000, help="slices of the trace, about (default 100000)")
    arguments = parser.parse_args()
    msprof = peers.binary("msprof")
    if headless.browser() is None:
        sys.exit("no Chromium (apt install chromium, or MS_CHROMIUM)")
    with tempfile.TemporaryDirectory() as folder:
        traces, page = os.path.join(folder, "traces"), os.path.join(folder, "report.html")
        ranks, steps, per_step = 8, 5, 2500  # of a rank, with 100 layers
        make_job.make(traces, ranks=ranks, steps=steps, layers=max(1, round(100 * arguments.slices / (ranks * steps * per_step))))
        subprocess.run([msprof, "report", traces, "-o", page], check=True, capture_output=True)
        with open(page, encoding="utf-8") as file:
            slices = sum(int(n) for n in re.findall(r'"slices":(\d+)', file.read()))
        rounds = [json.loads(headless.run(page, PROBE)[0]) for _ in range(arguments.rounds)]
        paint, drawn = (statistics.median(r[key] for r in rounds) for key in ("paint", "drawn"))
        print(f"{slices} slices, {os.path.getsize(page) / 1e6:.2f} MB: first paint {paint:.0f} ms, timeline drawn {drawn:.0f} ms, "
              f"median of {arguments.rounds}; first paints: {', '.join(str(round(r['paint'])) for r in rounds)} ms")


if __name__ == "__main__":
    main()
