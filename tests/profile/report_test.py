#!/usr/bin/env python3
"""The HTML report: one file, nothing from a network, names that look like markup do no harm, and every figure is that of the tables.

  report_test.py MAKE_TRACE
"""
import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile

MSPROF = os.path.join(os.environ["MS_BIN"], "msprof")
FAILED = []
# Verbs whose tables the report holds. No list of make_trace is long enough to be cut.
VERBS = (["breakdown"], ["breakdown", "--per-step"], ["overlap"], ["kernels"], ["ops"], ["launch"], ["queue"], ["idle"], ["memory"], ["ranks"],
         ["links"], ["pipeline"], ["pop"])


def expect(what, condition, seen=""):
    if not condition:
        FAILED.append(what)
        print(f"FAILED {what}: {str(seen)[:400]}")


class Page(html.parser.HTMLParser):
    """Tags, whatever could load something, and the tables: title -> rows of cells."""

    def __init__(self):
        super().__init__()
        self.tags, self.loads, self.tables = {}, [], {}
        self.title = self.text = None

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.loads += [(tag, k, v) for k, v in attrs if k in ("src", "href", "srcset", "action", "data") and not v.startswith("#")]
        if tag in ("h3", "th", "td"):
            self.text = ""
        if tag == "table":
            self.tables[self.title] = []
        if tag == "tr":
            self.tables[self.title].append([])

    def handle_data(self, data):
        if self.text is not None:
            self.text += data

    def handle_endtag(self, tag):
        if tag == "h3":
            self.title = self.text
        if tag in ("th", "td"):
            self.tables[self.title][-1].append(self.text)
        if tag in ("h3", "th", "td"):
            self.text = None


def hostile_trace(path):
    events = [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 1000}]
    names = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"'&<>", "\u2028]]>"]
    for i in range(4000):
        events.append({"ph": "X", "cat": "kernel", "name": names[i % 4], "pid": 0, "tid": 7, "ts": i / 8, "dur": 0.1,
                       "args": {"device": 0, "stream": 7}})
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events}, file)


def script(text, name):
    return json.loads(re.search(f'<script type="application/json" id="{name}">(.*?)</script>', text, re.S).group(1))


def report(source, out):
    ran = subprocess.run([MSPROF, "report", source, "-o", out], capture_output=True, text=True, check=False)
    expect("report prints its path", (ran.returncode, ran.stdout) == (0, out + "\n"), ran.stderr)
    with open(out, encoding="utf-8") as file:
        text = file.read()
    page = Page()
    page.feed(text)
    expect("three scripts: two of data, one of code", page.tags.get("script") == 3, page.tags)
    expect("nothing is loaded", page.loads == [] and not re.search(r"https?://", text), page.loads)
    expect("no image came in by a name", "img" not in page.tags, page.tags)
    expect("below 5 MB", len(text.encode()) < 5_000_000, len(text))
    timeline = script(text, "data-timeline")
    lanes = [lane for rank in timeline["ranks"] for lane in rank["lanes"]]
    expect("lanes have as many of everything", lanes and all(len(l["t"]) == len(l["d"]) == len(l["n"]) == len(l.get("z", l["n"])) for l in lanes))
    return text, page, timeline


def same_figures(source, page):
    """Every row that the verbs print stands in the report, cell by cell, and the report holds no others."""
    compared = 0
    for verb in VERBS:
        lines = subprocess.run([MSPROF, verb[0], source, *verb[1:]], capture_output=True, text=True, check=True).stdout.split("\n")
        for i, line in enumerate(lines):
            if line not in page.tables:
                continue
            header, *rows = page.tables[line]
            printed = [re.split(r" {2,}", row.strip()) for row in lines[i + 2:lines.index("", i)]]
            titles = re.split(r" {2,}", lines[i + 1].strip())
            kept = [header.index(title) for title in titles]  # columns that text leaves out stand in the report only
            expect(f"{verb[0]}: {line}", printed == [[row[c].strip() for c in kept if row[c]] for row in rows], (printed, rows))
            compared += len(rows)
    return compared


def main():
    with tempfile.TemporaryDirectory() as folder:
        traces = os.path.join(folder, "traces")
        subprocess.run([sys.argv[1], traces], check=True, capture_output=True)
        text, page, timeline = report(traces, os.path.join(folder, "native.html"))
        expect("figures are compared", same_figures(traces, page) > 25)
        expect("tables are there", len(page.tables) > 12, list(page.tables))
        found = json.loads(subprocess.run([MSPROF, "analyze", traces, "--json"], capture_output=True, text=True, check=True).stdout)["result"]
        charts = script(text, "data-charts")
        keys = ("computing_us", "exposed_communication_us", "exposed_memory_us", "idle_us")
        steps = [[int(step), *(round(1000 * row[key]) for key in ("host_us", "span_us") + keys)]
                 for step, row in found["ranks"][0]["per_step"].items()]
        shown = next(rank for rank in charts["ranks"] if rank["rank"] == 0)
        expect("steps are those of the JSON", steps == shown["steps"], (steps, shown["steps"]))
        spread = [[round(1000 * k[q]) for q in ("min_us", "p25_us", "median_us", "p75_us", "max_us")] for k in found["kernel_spread"]]
        expect("kernels across ranks are those of the JSON", spread == [k["spread"] for k in charts["kernels"]], (spread, charts["kernels"]))
        cards = re.findall(r'<li class="card".*?<b>([\d.]+) %</b> ([\d.]+) ms', text, re.S)
        expect("a card a finding", [share for share, _ in cards] == [f"{f['share_pct']:.2f}" for f in found["findings"]], cards)
        expect("flows lead from launches to kernels", all(len(rank["flows"]) == 12 for rank in timeline["ranks"]), timeline["ranks"][0]["flows"])

        hostile = os.path.join(folder, "hostile.json")
        hostile_trace(hostile)
        _, _, timeline = report(hostile, os.path.join(folder, "hostile.html"))
        names = [name[-1] for name in timeline["names"]]
        expect("names are kept", "</script><script>alert(1)</script>" in names, names)
    print("as expected" if not FAILED else f"{len(FAILED)} failed")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
