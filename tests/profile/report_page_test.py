#!/usr/bin/env python3
"""The HTML report in a headless Chromium: it draws, answers keys, searches, switches ranks, and the console stays silent.

  report_page_test.py        SKIPPED without a Chromium (MS_CHROMIUM, or in PATH)
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import headless  # noqa: E402
import make_job  # noqa: E402

MSPROF = os.path.join(os.environ["MS_BIN"], "msprof")
FAILED = []
PROBE = r"""
var out = {}, view = document.getElementById('view'), find = document.getElementById('find'), rank = document.getElementById('rank');
function state() { var d = view.dataset; return {from: +d.from, to: +d.to, slices: +d.slices, names: +d.names, flows: +d.flows, depth: +d.depth, rows: +d.rows}; }
function press(key) { view.dispatchEvent(new KeyboardEvent('keydown', {key: key, bubbles: true, cancelable: true})); return state(); }
function ink() {
  var data = view.getContext('2d').getImageData(0, 0, view.width, view.height).data, n = 0;
  for (var i = 3; i < data.length; i += 4) n += data[i] ? 1 : 0;
  return n / (data.length / 4);
}
function visible() {
  return Array.from(new Set(Array.from(document.querySelectorAll('#table-kernels tr[data-rank]')).filter(function (r) { return !r.hidden; })
                              .map(function (r) { return r.dataset.rank; })));
}
out.cards = document.querySelectorAll('.card').length;
document.querySelector(".smaller").open = true;
out.meters = Array.from(document.querySelectorAll('.meter span')).every(function (m) { return m.getBoundingClientRect().width > 0; });
out.start = state();
out.ink = ink();
out.focusable = (view.focus(), document.activeElement === view);
out.zoomed = ['w', '+', 'w', 'w', 'w', 'w', 'w', 'w', 'w', 'w', 'w', 'w'].map(press).pop();
out.right = press('d');
out.left = press('ArrowLeft');
out.out = press('s');
out.whole = press('0');
out.options = Array.from(rank.options).map(function (o) { return o.value; });
out.chosen = rank.value;
out.rows_chosen = visible();
rank.value = '2';
rank.dispatchEvent(new Event('change'));
out.rows_2 = visible();
out.rank_2 = state();
find.value = 'flash_fwd';
find.dispatchEvent(new Event('input'));
out.found = document.getElementById('found').textContent;
document.getElementById('find-next').click();
out.at_match = state();
out.match = document.getElementById('found').textContent;
out.slice = document.getElementById('slice').textContent;
find.value = 'no kernel is called this';
find.dispatchEvent(new Event('input'));
out.none = document.getElementById('found').textContent;
find.value = '';
find.dispatchEvent(new Event('input'));
rank.value = 'all';
rank.dispatchEvent(new Event('change'));
out.all = state();
out.rows_all = visible();
var header = document.querySelectorAll('#table-kernels th')[4];
header.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}));
out.sorted = header.getAttribute('aria-sort');
var sums = Array.from(document.querySelectorAll('#table-kernels tbody tr')).map(function (r) { return parseFloat(r.cells[4].textContent); });
out.descending = sums.every(function (s, i) { return i === 0 || sums[i - 1] >= s; });
out.charts = Array.from(document.querySelectorAll('.chart')).filter(function (f) { return !f.hidden && f.querySelectorAll('rect, path, circle').length; })
                  .map(function (f) { return f.id; });
out.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
requestAnimationFrame(function () { done(JSON.stringify(out)); });
"""


# Of routing traces, which have no times: cells of a layer by depth, and crosses of experts without tokens.
EXPERTS_PROBE = r"""
var figure = document.getElementById('experts-chart');
done(JSON.stringify({shown: !figure.hidden, rows: figure.querySelectorAll('text.end').length, loads: figure.querySelectorAll('path.load').length,
                     crosses: figure.querySelectorAll('path.dead').length, title: figure.querySelector('path.load title').textContent}));
"""
ROUTING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "routing", "megatron")


def expect(what, condition, seen=""):
    if not condition:
        FAILED.append(what)
        print(f"FAILED {what}: {str(seen)[:900]}")


def main():
    if headless.browser() is None:
        print("SKIPPED: no Chromium (apt install chromium, or MS_CHROMIUM)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        traces, page = os.path.join(folder, "traces"), os.path.join(folder, "report.html")
        make_job.make(traces, ranks=4, steps=3, layers=4, slow=1)
        subprocess.run([MSPROF, "report", traces, "-o", page], check=True, capture_output=True)
        text, console = headless.run(page, PROBE)
        seen = json.loads(text)
        expect("the console is silent", console == [], console)
        findings = json.loads(subprocess.run([MSPROF, "analyze", traces, "--json"], check=True, capture_output=True).stdout)["result"]["findings"]
        expect("a card a finding, each with a bar", seen["cards"] == len(findings) > 1 and seen["meters"], seen)
        start = seen["start"]
        expect("it draws", start["slices"] > 50 and seen["ink"] > 0.1, (start, seen["ink"]))
        expect("stacks are nested: frame, frame, frame, operator, call", start["depth"] >= 5 and start["rows"] >= 7, start)
        expect("it takes the focus", seen["focusable"])
        expect("W and + zoom in", seen["zoomed"]["to"] - seen["zoomed"]["from"] < 0.02 * (start["to"] - start["from"]), seen["zoomed"])
        expect("names and flows appear", seen["zoomed"]["names"] > 3 and seen["zoomed"]["flows"] > 0, seen["zoomed"])
        expect("D pans right, the left arrow back", seen["right"]["from"] > seen["zoomed"]["from"] > seen["left"]["from"] - 1 and
               seen["left"]["from"] < seen["right"]["from"], (seen["zoomed"], seen["right"], seen["left"]))
        expect("S zooms out", seen["out"]["to"] - seen["out"]["from"] > seen["left"]["to"] - seen["left"]["from"], seen["out"])
        expect("0 shows everything", (seen["whole"]["from"], seen["whole"]["to"]) == (start["from"], start["to"]), seen["whole"])
        expect("the picker holds all ranks", seen["options"] == ["all", "0", "1", "2", "3"], seen["options"])
        expect("it begins with the slow rank", seen["chosen"] == "1" and seen["rows_chosen"] == ["1"], (seen["chosen"], seen["rows_chosen"]))
        expect("the picker switches tables and timeline", seen["rows_2"] == ["2"] and seen["rank_2"]["rows"] >= 7, seen)
        expect("all ranks show all", seen["rows_all"] == ["0", "1", "2", "3"] and seen["all"]["rows"] >= 8, (seen["rows_all"], seen["all"]))
        expect("search counts", seen["found"].startswith("24 matches; also on 3 other ranks"), seen["found"])
        expect("and goes to a match", seen["match"].startswith("1 of 24") and "flash_fwd" in seen["slice"] and "launched by" in seen["slice"] and
               seen["at_match"]["to"] - seen["at_match"]["from"] < 0.5 * (start["to"] - start["from"]), seen)
        expect("search finds nothing where nothing is", seen["none"] == "0 matches", seen["none"])
        expect("tables sort by keyboard", seen["sorted"] == "descending" and seen["descending"], seen["sorted"])
        expect("charts are drawn", seen["charts"] == ["steps-chart", "spread-chart", "queue-chart", "memory-chart", "waits-chart"], seen["charts"])
        expect("nothing is wider than the page", seen["overflow"] <= 0, seen["overflow"])
        subprocess.run([MSPROF, "report", ROUTING, "-o", page], check=True, capture_output=True)
        text, console = headless.run(page, EXPERTS_PROBE)
        seen = json.loads(text)
        expect("the heat map of experts is drawn", console == [] and seen["shown"] and seen["rows"] >= 3 and seen["loads"] >= 6, (seen, console))
        expect("with a cross for the expert without tokens", seen["crosses"] == 1 and "layer 0: " in seen["title"], seen)
    print("as expected" if not FAILED else f"{len(FAILED)} failed")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
