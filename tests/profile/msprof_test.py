#!/usr/bin/env python3
"""The msprof command line: verbs, JSON, CSV, exit codes, path lists, and linked libraries.

  msprof_test.py MAKE_TRACE
"""
import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tempfile

MSPROF = os.path.join(os.environ["MS_BIN"], "msprof")
FAILED = []


def run(*args, stdin=""):
    ran = subprocess.run([MSPROF, *args], input=stdin, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def expect(what, condition, seen=""):
    if not condition:
        FAILED.append(what)
        print(f"FAILED {what}: {seen}")


def one_line(text):
    return len(text.splitlines()) == 1


def check_results(traces):
    status, out, err = run("analyze", traces, "--json")
    expect("analyze exits 0", status == 0, err)
    expect("JSON is one line", one_line(out))
    report = json.loads(out)
    expect("schema", report["schema"] == "msprof/1" and report["command"] == "analyze", report["schema"])
    expect("nothing is lost", report["import"]["data_loss"] is False and report["import"]["counts"] == {}, report["import"])
    rank = report["result"]["ranks"][1]
    expect("every section", {"facts", "breakdown", "per_step", "kernel_types", "kernels", "steps"} <= set(rank), list(rank))
    breakdown = rank["breakdown"]
    wanted = {"span_us": 2640.0, "computing_us": 1200.0, "communication_us": 450.0, "exposed_communication_us": 300.0,
              "exposed_memory_us": 60.0, "busy_us": 1560.0, "idle_us": 1080.0, "overlap_us": 150.0, "overlap_pct": 33.3333}
    expect("breakdown", {k: breakdown[k] for k in wanted} == wanted, breakdown)
    step = rank["steps"][0]
    wanted = {"step": 10, "computing_us": 400.0, "communication_not_overlapped_us": 100.0, "overlapped_us": 50.0,
              "free_us": 400.0, "preparing_us": 100.0, "stage_us": 900.0, "bubble_us": 0.0}
    expect("steps", {k: step[k] for k in wanted} == wanted, step)
    expect("clock of rank 1", rank["facts"]["clock_offset_us"] == 40.0 and rank["facts"]["clock_error_us"] == 0.5, rank["facts"])
    findings = [(finding["kind"], finding["cause"], finding["lost_us"]) for finding in report["result"]["findings"]]
    # 30 us between the loader and "forward" in each of six steps count as host overhead, like any pause of at most 50 us
    wanted = [("idle", "unknown", 2220.0), ("exposed_communication", None, 600.0), ("idle", "host_work", 348.0),
              ("data_loading", None, 300.0), ("exposed_memory", None, 120.0), ("idle", "launch_latency", 12.0)]
    expect("findings by lost time", findings == wanted, findings)
    expect("each says what to do", all(finding["remedy"] for finding in report["result"]["findings"]))
    causes = [rank["idle_causes"]["by_cause_us"] for rank in report["result"]["ranks"]]
    idle = {cause: lost for kind, cause, lost in findings if kind == "idle"}
    expect("findings are sums of the table", all(sum(rank[cause] for rank in causes) == idle[cause] for cause in idle), causes)

    text = run("analyze", traces)[1]
    for threads in ("1", "2", "3"):
        again = run("analyze", traces, "--threads", threads)
        expect(f"{threads} threads say the same", again[0] == 0 and again[1] == text, again)
    expect("the page shows commands", f"msprof breakdown --per-step {traces}" in text, text)
    expect("kernels by name", "gemm_bf16" in run("kernels", traces)[1])
    expect("breakdown table", "45.45" in run("breakdown", traces)[1], run("breakdown", traces)[1])
    expect("steps table", run("steps", traces)[1].splitlines()[1].split()[:3] == ["10", "0", "1.00"], run("steps", traces)[1])
    expect("info says level and clock", "level1" in run("info", traces)[1])
    chosen = json.loads(run("breakdown", traces, "--json", "--rank", "1", "--step", "11-12")[1])["result"]["ranks"]
    expect("--rank and --step", [r["rank"] for r in chosen] == [1] and chosen[0]["breakdown"]["computing_us"] == 800.0, chosen)
    top = json.loads(run("kernels", traces, "--json", "--top", "1")[1])["result"]["ranks"][0]["kernels"]
    expect("--top", len(top["top"]) == 1 and top["distinct"] == 3, top)
    per_step = json.loads(run("breakdown", "--per-step", traces, "--json")[1])["result"]["ranks"][0]["per_step"]
    expect("--per-step", sorted(per_step) == ["10", "11", "12"], per_step)
    expect("--pretty", len(run("info", traces, "--json", "--pretty")[1].splitlines()) > 20)


def check_csv(traces, folder):
    status, out, _ = run("steps", traces, "--csv", folder)
    path = os.path.join(folder, "cluster_step_trace_time.csv")
    expect("--csv prints the paths", status == 0 and out.split() == [path], out)
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expect("vendor's columns", list(rows[0])[:5] == ["Step", "Type", "Index", "Computing", "Communication(Not Overlapped)"], rows[0])
    ranks = [r for r in rows if r["Type"] == "rank"]
    stages = [r for r in rows if r["Type"] == "stage"]
    expect("a row for each rank and step", len(ranks) == 6 and len(stages) == 3, len(rows))
    expect("index of a stage", stages[0]["Index"] == "(0, 1)", stages[0])
    expect("microseconds", ranks[0]["Computing"] == "400.000", ranks[0])
    run("analyze", traces, "--csv", folder)
    expect("all sections", len(os.listdir(folder)) == 21, os.listdir(folder))


def check_inputs(traces, folder):
    paths = [os.path.join(traces, f"rank_0000{r}.mstrace") for r in (0, 1)]
    whole = run("breakdown", traces, "--json")[1]
    listed = run("breakdown", "-", "--json", stdin="\n".join(paths) + "\n")[1]
    expect("- is a list of paths", json.loads(whole)["result"] == json.loads(listed)["result"])
    expect("an empty list on stdin: the upstream command failed", run("breakdown", "-", stdin="") == (0, "", ""))

    for data in ('{"traceEvents": []}', "[{}]", "\x1f\x08", "\n\x10\x08"):
        status, out, err = run("breakdown", "-", stdin=data)
        expect(f"a trace on stdin {data[:4]!r}: exit 2, one line with the cure", status == 2 and out == "" and one_line(err)
               and "/dev/stdin" in err, (status, err))
    with open(paths[0], "rb") as trace:
        read = subprocess.run([MSPROF, "breakdown", "/dev/stdin", "--json"], stdin=trace, capture_output=True, check=False)
    expect("the cure works", read.returncode == 0 and len(json.loads(read.stdout)["result"]["ranks"]) == 1, read.stderr)

    status, out, err = run("analyze", os.path.join(folder, "missing.mstrace"))
    expect("missing: exit 2, one line", status == 2 and out == "" and one_line(err), (status, err))
    junk = os.path.join(folder, "junk.txt")
    with open(junk, "w", encoding="utf-8") as file:
        file.write("hello")
    status, out, err = run("analyze", junk)
    expect("no trace: exit 3, one line", status == 3 and out == "" and one_line(err), (status, err))
    empty = os.path.join(folder, "empty")
    os.mkdir(empty)
    status, out, err = run("analyze", empty)
    expect("a folder without traces: exit 2, one line", status == 2 and one_line(err), (status, err))
    for bad in (["analyze"], ["nosuchverb", traces], ["analyze", traces, "--nosuchflag"], ["steps", traces, "--rank", "x"],
                ["steps", traces, "--rank", "7"], ["steps", traces, "--step", "99"], [],
                ["convert", traces, "-o", os.path.join(folder, "a.json")], ["convert", traces, "-o", "a.txt", "--merge"]):
        status, out, err = run(*bad)
        expect(f"{bad}: exit 2, one line", status == 2 and out == "" and one_line(err), (status, err))

    cut = os.path.join(folder, "rank_00000.mstrace")
    with open(paths[0], "rb") as source, open(cut, "wb") as target:
        data = source.read()
        target.write(data[:-200])
    status, out, err = run("breakdown", cut, "--json")
    expect("cut: analysed", status == 0 and json.loads(out)["import"]["data_loss"] is True, (status, out))
    expect("cut: reported", json.loads(out)["import"]["counts"].get("truncated") == 1 and "truncated" in err, err)
    expect("cut: --strict exits 3", run("breakdown", cut, "--strict")[0] == 3)
    expect("whole: --strict exits 0", run("breakdown", traces, "--strict")[0] == 0)
    status, out, err = run("breakdown", traces, junk, "--json")
    expect("one bad of three: others analysed", status == 0 and len(json.loads(out)["result"]["ranks"]) == 2, (status, err))
    expect("one bad of three: counted", json.loads(out)["import"]["counts"] == {"unreadable_file": 1}, out)
    twin = os.path.join(folder, "twin_rank_00000.mstrace")
    with open(twin, "wb") as target:
        target.write(data)
    status, _, err = run("breakdown", paths[0], twin)
    expect("two files of one rank: exit 2, both named", status == 2 and "twin_rank" in err and paths[0] in err, err)
    one = json.loads(run("breakdown", paths[1], "--json")[1])
    expect("a missing rank is named", one["import"]["counts"] == {"missing_ranks": 1}, one["import"])


def check_convert(traces, folder):
    out_path = os.path.join(folder, "all.json")
    status, out, err = run("convert", traces, "--merge", "-o", out_path)
    expect("convert prints the path", (status, out) == (0, out_path + "\n"), (status, out, err))
    with open(out_path, encoding="utf-8") as file:
        trace = json.load(file)
    starts = {e["pid"]: e["ts"] for e in reversed(trace["traceEvents"]) if e["name"] == "gemm_bf16"}
    expect("merged on one clock", starts[0] == starts[1], starts)
    status, out, _ = run("convert", traces, "-o", os.path.join(folder, "each") + "/", "--format", "json.zst")
    expect("a folder gets a file a rank", len(out.split()) == 2 and all(os.path.exists(p) for p in out.split()), out)
    expect("one rank into one file", run("convert", traces, "--rank", "1", "-o", os.path.join(folder, "one.json.gz"))[0] == 0)


def check_extras(traces, folder):
    """Files that verbs write in addition to their tables."""
    path = os.path.join(folder, "extra.json")
    status, out, err = run("critical-path", traces, "--rank", "0", "--annotation", "", "--overlay", path, "--json")
    expect("--overlay", status == 0, err)
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    marked = [e["name"] for e in events if e.get("args", {}).get("critical") == 1]
    wanted = [e["name"] for e in json.loads(out)["result"]["events"]]
    expect("the events of the path are marked", marked == wanted and len(marked) > 2, (marked, wanted))
    flows = [e["ph"] for e in events if e.get("cat") == "critical_path"]
    expect("a flow from each to the next", flows == ["s", "f"] * (len(marked) - 1), flows)
    status, _, err = run("critical-path", traces, "--overlay", path)
    expect("--overlay of two ranks", status == 2 and one_line(err) and "choose it with --rank" in err, (status, err))

    path = os.path.join(folder, "stacks")
    expect("--collapsed", run("ops", traces, "--collapsed", path)[0] == 0)
    with open(path, encoding="utf-8") as file:
        stacks = file.read().splitlines()
    expect("stacks of both ranks", {line[:7] for line in stacks} == {"rank 0;", "rank 1;"}
           and all(line.rsplit(" ", 1)[1].isdigit() for line in stacks), stacks)

    path = os.path.join(folder, "counters.json")
    expect("--counters", run("queue", traces, "--counters", path)[0] == 0)
    with open(path, encoding="utf-8") as file:
        tracks = {e["name"] for e in json.load(file)["traceEvents"] if e["ph"] == "C"}
    expect("a track for each stream", "queue length, stream 7" in tracks, tracks)

    path = os.path.join(folder, "rules.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump([{"name": "gemm", "class": "COMMUNICATION"}], file)
    rank = json.loads(run("breakdown", traces, "--class-rules", path, "--json")[1])["result"]["ranks"][1]["breakdown"]
    expect("--class-rules", rank["computing_us"] < 1200.0 < rank["computing_us"] + rank["communication_us"], rank)
    files = [os.path.join(traces, name) for name in sorted(os.listdir(traces)) if name.endswith(".mstrace")]
    ranks = json.loads(run("info", *files, "--rank-from-name", r"rank_0000(\d)", "--json")[1])["result"]["ranks"]
    expect("--rank-from-name", [r["rank"] for r in ranks] == [0, 1], ranks)
    status, _, err = run("info", *files, "--rank-from-name", "node(1)")
    expect("a name that does not say", status == 2 and one_line(err) and "no rank in its name" in err, (status, err))


def check_questions(traces, folder):
    status, out, err = run("query", traces, "SELECT rank, class, sum(dur) ns FROM events WHERE class IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2")
    rows = list(csv.DictReader(io.StringIO(out)))
    sums = {(r["rank"], r["class"]): int(r["ns"]) for r in rows}
    expect("query sums", status == 0 and sums[("1", "COMPUTATION")] == 1200000 and sums[("1", "COMMUNICATION")] == 450000, (sums, err))
    for bad in ("SELEC", "DELETE FROM events", "SELECT 1; SELECT 2", "ATTACH 'x' AS y", ""):
        status, out, err = run("query", traces, bad)
        expect(f"query {bad!r}: exit 2, one line", status == 2 and out == "" and one_line(err), (status, err))
    text = run("query", "--help")[1]
    for table in ("events", "counters", "memory", "steps", "ranks"):
        listed = re.search(rf"^  {table}: (.*)$", text, re.M)
        expect(f"query --help lists {table}", listed is not None, text)
        columns = listed.group(1) if listed else "1"
        status, out, err = run("query", traces, f"SELECT {columns} FROM {table} LIMIT 1")
        expect(f"query --help names the columns of {table}", status == 0, (columns, err))
    out = run("events", traces, "--where", "cat=kernel,name~gemm,rank=1", "--columns", "rank,name,dur")[1]
    rows = list(csv.DictReader(io.StringIO(out)))
    expect("events by conditions", len(rows) > 0 and {r["rank"] for r in rows} == {"1"} and {r["name"] for r in rows} == {"gemm_bf16"}, rows)
    expect("events with a bad column: exit 2", run("events", traces, "--columns", "no such")[0] == 2)

    status, out, _ = run("check", traces, "--max-exposed-comm", "20%", "--max-slow-rank", "1.5", "--json")
    checks = json.loads(out)["result"]
    expect("check holds", status == 0 and checks["holds"] is True and len(checks["checks"]) == 2, (status, out))
    expect("check broken: exit 10", run("check", traces, "--max-exposed-comm", "0.05")[0] == 10)
    expect("check without a threshold: exit 2", run("check", traces)[0] == 2)
    expect("check of what is not there: exit 2", run("check", traces, "--max-bubble", "10%")[0] == 2)
    status, out, _ = run("check", traces, "--against", traces, "--json")
    expect("check --against alone compares steps", status == 0 and [c["what"] for c in json.loads(out)["result"]["checks"]] == ["slowdown"], out)
    expect("check against itself", run("check", traces, "--max-slowdown", "1.01", "--against", traces)[0] == 0)

    cut = os.path.join(folder, "cut") + "/"
    status, out, err = run("slice", traces, "--step", "11", "-o", cut, "--format", "json")
    expect("slice writes a file a rank", status == 0 and len(out.split()) == 2, (status, err))
    whole = json.loads(run("breakdown", traces, "--json", "--step", "11")[1])["result"]["ranks"]
    part = json.loads(run("breakdown", cut, "--json")[1])["result"]["ranks"]
    keys = ("computing_us", "communication_us", "memory_us", "events")
    expect("a slice is the step", [[r["breakdown"][k] for k in keys] for r in part] == [[r["breakdown"][k] for k in keys] for r in whole], part)

    # Steps last 1000 us: select the second by time, by step, and as rows.
    early = json.loads(run("breakdown", traces, "--json", "--time-range", "0-1000", "--rank", "0")[1])["result"]["ranks"]
    one = json.loads(run("breakdown", traces, "--json", "--step", "10", "--rank", "0")[1])["result"]["ranks"]
    expect("a range of time", [r["breakdown"]["computing_us"] for r in early] == [r["breakdown"]["computing_us"] for r in one], early)
    for verb, more in (("events", ("--where", "cat=kernel")), ("query", ("SELECT name FROM events WHERE cat = 'kernel'",))):
        every = run(verb, traces, *more)[1].splitlines()
        step = run(verb, "--step", "11", traces, *more)[1].splitlines()
        expect(f"{verb} of one step of three", len(every) - 1 == 3 * (len(step) - 1) > 0, (every, step))
    two = json.loads(run("breakdown", traces, "--json", "--step", "10-11")[1])["result"]["ranks"]
    kept = json.loads(run("breakdown", traces, "--json", "--last-step", "drop")[1])["result"]["ranks"]
    expect("--last-step drop", [[r["breakdown"][k] for k in keys] for r in kept] == [[r["breakdown"][k] for k in keys] for r in two], kept)
    hta = json.loads(run("breakdown", traces, "--compat", "hta", "--last-step", "drop", "--json")[1])["result"]["temporal_breakdown"]
    expect("--last-step drop --compat hta", [r["compute_time_us"] for r in hta] == [800.0, 800.0], hta)
    hta = json.loads(run("analyze", traces, "--compat", "hta", "--json")[1])["result"]["hta"]
    expect("analyze --compat hta", hta["profiler_steps"] == [10, 11, 12] and hta["queue_length_summary"][0]["count"] == 12, hta)
    status, out, _ = run("analyze", traces, "--compat", "hta")
    expect("analyze --compat hta as text", status == 0 and "host_wait" in out and "As Holistic Trace Analysis counts" in out, out)
    status, out, err = run("analyze", traces, "--compat", "hta", "--align", "none")
    expect("analyze --compat hta refuses what it would ignore", status == 2 and out == "" and one_line(err), (status, err))
    expect("an invalid range: exit 2", run("info", traces, "--time-range", "5-1")[0] == 2)

    for verb, what in (("ranks", "cross_rank"), ("pop", "pop"), ("links", "cross_rank"), ("pipeline", "pipeline")):
        status, out, err = run(verb, traces, "--json")
        expect(f"{verb} has its section", status == 0 and what in json.loads(out)["result"], err)
    diff = json.loads(run("diff", traces, traces, "--json")[1])["result"]["device"]
    expect("no difference to itself", diff["total_us"][0] == diff["total_us"][1] and diff["by_count_change"]["added"] == 0, diff)


def check_round_trip(traces, folder):
    """A trace and its conversion give the same numbers."""
    sections = ("breakdown", "kernel_types", "per_step", "idle", "launch_stats", "queue_length", "memory_timeline", "operators")
    native = json.loads(run("analyze", traces, "--json", "--top", "0")[1])["result"]["ranks"]
    for format in ("json.gz", "perfetto-trace", "perfetto-trace.gz"):
        each = os.path.join(folder, f"round_{format}") + "/"
        run("convert", traces, "-o", each, "--format", format)
        back = json.loads(run("analyze", each, "--json", "--top", "0")[1])["result"]["ranks"]
        expect(f"round trip by {format}: ranks", len(back) == 2, back)
        for ours, theirs in zip(native, back):
            for section in sections:
                a, b = json.loads(json.dumps(ours[section])), json.loads(json.dumps(theirs[section]))
                if section == "memory_timeline":  # ts is relative to the first event of the file
                    for timeline in (*a.values(), *b.values()):
                        timeline.pop("peak_at_us")
                        timeline.pop("peak_reserved")
                expect(f"round trip by {format}: {section}", a == b, (a, b))


def check_identity(traces, folder):
    """Native to JSON and back gives the same events; Python's json reads the JSON."""
    there, back, again = (os.path.join(folder, name) + "/" for name in ("there", "back", "again"))
    run("convert", traces, "-o", there, "--format", "json.gz")
    for rank in (0, 1):
        with gzip.open(os.path.join(there, f"rank_0000{rank}.json.gz")) as file:
            trace = json.load(file)
        expect("Python reads the key", trace["msuite"]["meta"]["rank"] == rank and len(trace["msuite"]["clocks"]) == 1, trace["msuite"])
    status, out, err = run("convert", there, "-o", back, "--format", "mstrace")
    expect("back to a native file a rank", (status, len(out.split())) == (0, 2), (status, out, err))
    run("convert", back, "-o", again, "--format", "json.gz")
    for verb in (("events",), ("analyze", "--json", "--top", "0"), ("breakdown", "--compat", "hta", "--json")):
        told = [run(*verb, place)[1] for place in (traces, there, back)]
        if verb[0] != "events":
            told = [json.loads(text)["result"] for text in told]
            for rank in (rank for result in told for rank in result.get("ranks", []) if "facts" in rank):
                for of_the_file in ("events", "json_bytes", "by_ph", "by_cat", "flow_ids", "flow_pairs_complete", "baseTimeNanoseconds",
                                    "displayTimeUnit", "schemaVersion"):
                    rank["facts"].pop(of_the_file, None)
        expect(f"{verb[0]}: there", told[0] == told[1], told[:2])
        expect(f"{verb[0]}: and back", told[0] == told[2], told[::2])
    for name in os.listdir(there):
        one, two = (json.load(gzip.open(place + name)) for place in (there, again))
        one_events, two_events = (sorted(map(json.dumps, trace.pop("traceEvents"))) for trace in (one, two))
        expect("the second JSON is the first, but for the order of what begins together", one == two and one_events == two_events, name)


def check_long_name(folder):
    """Matching is recursive: a name of 300 kB must not overflow the stack."""
    events = [{"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": 1, "dur": 5}
              for cat, name in (("cpu_op", "load" + 300_000 * "a"), ("user_annotation", "ProfilerStep#1"))]
    path = os.path.join(folder, "long_name.json")
    with open(path, "w", encoding="ascii") as file:
        json.dump(events, file)
    status, _, err = run("critical-path", path, "--data-load", "load(a|b)*$")
    expect("a long name and --data-load", status == 0, (status, err))


def check_binary():
    linked = subprocess.run(["ldd", MSPROF], capture_output=True, text=True, check=False).stdout
    expect("links neither MPI nor the trainer's libraries",
           not any(word in linked for word in ("libmpi", "open-rte", "open-pal", "dnnl", "hdf5")), linked)
    expect("--help exits 0", run("--help")[0] == 0)
    closed = subprocess.run(f"{MSPROF} --help | head -c 1 >/dev/null; exit ${{PIPESTATUS[1]}}", shell=True, executable="/bin/bash",
                            capture_output=True, check=False)
    expect("a closed pipe is quiet", closed.stderr == b"", closed.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        traces = os.path.join(folder, "traces")
        made = subprocess.run([sys.argv[1], traces], capture_output=True, text=True, check=True).stdout
        expect("two traces", len(io.StringIO(made).readlines()) == 2, made)
        check_results(traces)
        check_csv(traces, os.path.join(folder, "csv"))
        check_inputs(traces, folder)
        check_convert(traces, folder)
        check_extras(traces, folder)
        check_questions(traces, folder)
        check_round_trip(traces, folder)
        check_identity(traces, folder)
        check_long_name(folder)
    check_binary()
    print("as expected" if not FAILED else f"{len(FAILED)} failed")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
