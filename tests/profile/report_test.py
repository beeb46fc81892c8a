#!/usr/bin/env python3
"""The HTML report: one file, nothing from a network, names that look like markup do no harm, sizes stay small.

  report_test.py MAKE_TRACE    In a headless Chromium too, where one is at hand: it draws, and complains of nothing.
"""
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

MSPROF = os.path.join(os.environ["MS_BIN"], "msprof")
FAILED = []


def expect(what, condition, seen=""):
    if not condition:
        FAILED.append(what)
        print(f"FAILED {what}: {str(seen)[:400]}")


class Page(html.parser.HTMLParser):
    """Counts tags, and notes every attribute that could load something."""

    def __init__(self):
        super().__init__()
        self.tags, self.loads, self.rows = {}, [], 0

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.loads += [(tag, k, v) for k, v in attrs if k in ("src", "href", "srcset", "action", "data")]


def hostile_trace(path):
    events = [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 1000}]
    names = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"'&<>", "\u2028]]>"]
    for i in range(4000):
        events.append({"ph": "X", "cat": "kernel", "name": names[i % 4], "pid": 0, "tid": 7, "ts": i / 8, "dur": 0.1,
                       "args": {"device": 0, "stream": 7}})
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events}, file)


def report(source, out):
    ran = subprocess.run([MSPROF, "report", source, "-o", out], capture_output=True, text=True, check=False)
    expect("report prints its path", (ran.returncode, ran.stdout) == (0, out + "\n"), ran.stderr)
    with open(out, encoding="utf-8") as file:
        text = file.read()
    page = Page()
    page.feed(text)
    expect("two scripts: data and code", page.tags.get("script") == 2, page.tags)
    expect("nothing is loaded", page.loads == [] and not re.search(r"https?://", text), page.loads)
    expect("no image came in by a name", "img" not in page.tags, page.tags)
    expect("tables without JavaScript", page.tags.get("table", 0) >= 3 and page.tags.get("td", 0) > 10, page.tags)
    expect("below 5 MB", len(text) < 5_000_000, len(text))
    data = re.search(r'<script type="application/json" id="timeline">(.*?)</script>', text, re.S).group(1)
    timeline = json.loads(data)
    expect("the timeline has lanes and slices", timeline["lanes"] and timeline["slices"], timeline.keys())
    expect("a character a column", all(len(lane["share"]) == len(lane["klass"]) for lane in timeline["lanes"]))
    return timeline


def in_chromium(path):
    browser = next((b for b in ("chromium-headless-shell", "chromium", "chromium-browser") if shutil.which(b)), None)
    if browser is None:
        print("note: no chromium, the page was not drawn")
        return
    # What the page says of itself at the end; the console goes to stderr.
    with open(path, encoding="utf-8") as file:
        page = file.read()
    probe = """<script>(function(){
      var before=+document.getElementById('view').getAttribute('data-to');
      document.getElementById('in').click();
      var after=+document.getElementById('view').getAttribute('data-to');
      document.getElementById('find').value='img'; document.getElementById('find').dispatchEvent(new Event('input'));
      var th=document.querySelectorAll('table.sortable th')[1]; th.click();
      document.title='probe '+(after<before)+' '+th.getAttribute('aria-sort')+' '+document.querySelectorAll('canvas').length;
    })();</script></body>"""
    probed = path.replace(".html", "_probed.html")
    with open(probed, "w", encoding="utf-8") as file:
        file.write(page.replace("</body>", probe))
    ran = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0", "--dump-dom",
                          "file://" + probed], capture_output=True, text=True, timeout=100, check=False)
    title = re.search(r"<title>(.*?)</title>", ran.stdout, re.S)
    expect("it zooms, searches and sorts", title and title.group(1) == "probe true descending 1", (title and title.group(1), ran.stderr[-300:]))
    console = [line for line in ran.stderr.splitlines() if ":CONSOLE" in line]
    expect("the console is quiet", console == [], console)


def main():
    with tempfile.TemporaryDirectory() as folder:
        traces = os.path.join(folder, "traces")
        subprocess.run([sys.argv[1], traces], check=True, capture_output=True)
        report(traces, os.path.join(folder, "native.html"))
        hostile = os.path.join(folder, "hostile.json")
        hostile_trace(hostile)
        out = os.path.join(folder, "hostile.html")
        timeline = report(hostile, out)
        expect("names are kept", "</script><script>alert(1)</script>" in timeline["names"], timeline["names"])
        in_chromium(out)
    print("as expected" if not FAILED else f"{len(FAILED)} failed")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
