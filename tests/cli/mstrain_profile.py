#!/usr/bin/env python3
"""Each --profile* flag of mstrain changes what is recorded, and no other flag does."""
import ctypes
import gzip
import json
import os
import re
import signal
import sys

import training

WINDOW = ["--profile-step-start", "1", "--profile-step-end", "3"]
# What a trace can contain, each as a test of one event of its Chrome JSON.
FEATURES = {
    "phases": lambda e: e.get("cat") == "user_annotation" and e["name"] in ("data", "optimizer"),
    "kernels": lambda e: e.get("cat") == "kernel" and "Collective name" not in e["args"],
    "collectives": lambda e: e.get("cat") == "kernel" and e["args"].get("Process Group Name") == "tp" and e["args"]["In msg nelems"] > 0,
    "flops": lambda e: e.get("cat") == "kernel" and e["args"].get("flops", 0) > 0,
    "bytes": lambda e: e.get("cat") == "kernel" and e["args"].get("bytes", 0) > 0,
    "waits": lambda e: e.get("cat") == "gpu_user_annotation" and e["name"] == "wait",
    "traffic": lambda e: e.get("ph") == "C" and e["name"] in ("tp calls", "tp bytes"),
    "counters": lambda e: e.get("ph") == "C" and not e["name"].endswith((" calls", " bytes")),
    "operators": lambda e: e.get("cat") == "cpu_op",
    "submissions": lambda e: e.get("cat") == "cuda_runtime",
    "stacks": lambda e: "Call stack" in e.get("args", {}),
    "allocations": lambda e: e.get("name") == "[memory]",
    "shapes": lambda e: "Input Dims" in e.get("args", {}),
}
LEVEL0 = {"phases", "kernels", "collectives"}
LEVEL1 = LEVEL0 | {"flops", "bytes", "waits", "traffic"}
CPU = {"operators", "submissions"}
# (flags, what is recorded)
CASES = [
    ([], LEVEL0),
    (["--profile-level", "level0"], LEVEL0),
    (["--profile-level", "level1"], LEVEL1),
    (["--profile-level", "level2"], LEVEL1 | {"counters"}),
    (["--profile-with-cpu"], LEVEL0 | CPU),
    (["--profile-with-stack"], LEVEL0 | {"stacks"}),
    (["--profile-with-cpu", "--profile-with-memory"], LEVEL0 | CPU | {"allocations"}),
    (["--profile-with-cpu", "--profile-record-shapes"], LEVEL0 | CPU | {"shapes"}),
]
# (--profile-ranks, the ranks that record)
RANKS = [([], [0]), (["0"], [0]), (["1"], [1]), (["0", "1"], [0, 1]), (["-1"], [0, 1])]


def zstd(data):
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_decompress.restype = ctypes.c_size_t
    # streams do not state their size: allow for a compression ratio that JSON does not reach
    room = ctypes.create_string_buffer(200 * len(data))
    size = library.ZSTD_decompress(room, ctypes.c_size_t(len(room)), data, ctypes.c_size_t(len(data)))
    assert size <= len(room), "zstd cannot read it"
    return room.raw[:size]


OPEN = {"json": bytes, "json.gz": gzip.decompress, "json.zst": zstd}


def read_trace(path, form):
    with open(path, "rb") as file:
        return json.loads(OPEN[form](file.read()))["traceEvents"]


def steps(events):
    return sorted(int(e["name"][13:]) for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep#"))


def amounts(place):
    """The part of the recording cost that is the same on every machine: events per step, and bytes per event."""
    for flags, most in ((["--profile-level", "level0"], 175), (["--profile-level", "level1"], 175),
                        (["--profile-level", "level1", "--profile-with-cpu"], 510)):
        ran = place.run("--train-iters", "300", "--log-interval", "300", "--profile", "--profile-step-start", "1", "--profile-step-end",
                        "300", "--profile-save-path", "amounts", *flags)
        info = place.tool("msprof", "events", "amounts", "--columns", "ts,dur,name")
        rows = [line.split(",", 2) for line in info.stdout.splitlines()[1:]]
        starts = sorted((int(ts), int(ts) + int(dur)) for ts, dur, name in rows if name.startswith("ProfilerStep#"))
        times = [int(ts) for ts, _, _ in rows]
        a_step = [sum(start <= ts < end for ts in times) for start, end in starts[::29]]
        place.expect(len(starts) == 299 and len(set(a_step)) == 1 and a_step[0] <= most, f"{flags}: {set(a_step)} events a step", ran)
        size = os.path.getsize(place.path("amounts", "rank_00000.mstrace"))
        place.expect(size <= 4 * len(rows), f"{flags}: {size / len(rows):.2f} bytes an event", info)


def ask(place):
    """SIGUSR2 starts and stops traces in a running job, any number of times; mpirun forwards it."""
    job = place.start("--train-iters", "1000000", "--profile-save-path", "asked", "--profile-ranks", "-1",
                      "--profile-level", "level2", "--exit-signal-handler", "--exit-signal", "SIGUSR1", ranks=2)
    job.wait_for_line("iteration 3/")
    for window in range(2):
        for line in ("recording from iteration", "trace of iterations"):
            os.kill(job.process.pid, signal.SIGUSR2)
            training.wait_for(lambda: job.said().count(line) > window or job.process.poll() is not None, f'"{line}"')
    os.kill(job.process.pid, signal.SIGUSR2)  # the third trace is open when the job ends
    training.wait_for(lambda: job.said().count("recording from iteration") > 2 or job.process.poll() is not None, "a third")
    os.kill(job.process.pid, signal.SIGUSR1)
    ran = job.end()
    windows = re.findall(r"trace of iterations (\d+) to (\d+) in (\S+)", ran.stderr)
    place.expect(len(windows) == 3 and not ran.errors, "SIGUSR2 records three windows", ran)
    place.expect(len(os.listdir(place.path("asked"))) == 3, f"a folder each: {os.listdir(place.path('asked'))}")
    for first, end, folder in windows:
        place.expect(folder == f"asked/from_iteration_{first}", f"the folder of iteration {first} is {folder}")
        info = place.tool("msprof", "info", folder, "--json")
        told = json.loads(info.stdout)
        ranks = told["result"]["ranks"]
        place.expect([rank["facts"]["steps"] for rank in ranks] == [list(range(int(first), int(end)))] * 2
                     and not told["import"]["data_loss"], f"the trace of {folder} is whole", info)
    # Counters that the kernel does not allow are reported once per window, by one rank.
    notices = ran.stderr.count("not counted, the kernel refuses")
    place.expect(notices in (0, 3), f"one notice a window, not {notices}", ran)

    # A requested trace that cannot be written does not end the job; one of --profile does.
    with open(place.path("file"), "w", encoding="utf-8"):
        pass
    job = place.start("--train-iters", "1000000", "--profile-save-path", "file/in")
    job.wait_for_line("iteration 3/")
    os.kill(job.process.pid, signal.SIGUSR2)
    job.wait_for_line("the run goes on without this trace")
    said = job.said().count("iteration ")
    training.wait_for(lambda: job.said().count("iteration ") > said + 3, "more iterations")
    os.kill(job.process.pid, signal.SIGTERM)
    ran = job.end()
    place.expect(ran.exit == 128 + signal.SIGTERM and not ran.errors, "a trace that cannot be opened is passed over", ran)

    # The signal ends the window of the flags, which is not opened again.
    job = place.start("--train-iters", "1000000", "--profile", "--profile-step-start", "2", "--profile-step-end", "1000000",
                      "--profile-save-path", "ended")
    job.wait_for_line("recording from iteration 2")
    os.kill(job.process.pid, signal.SIGUSR2)
    job.wait_for_line("trace of iterations 2 to")
    os.kill(job.process.pid, signal.SIGTERM)
    ran = job.end()
    place.expect(os.listdir(place.path("ended")) == ["rank_00000.mstrace"] and ran.stderr.count("recording from") == 1,
                 "SIGUSR2 ends the window of the flags", ran)


def main():
    with training.workplace() as place:
        place.make_data()

        def record(name, *flags, ranks=1):
            ran = place.run("--train-iters", "4", "--profile", "--profile-save-path", name, *flags, ranks=ranks)
            place.expect(ran.exit == 0, f"{flags} records", ran)
            return sorted(os.listdir(place.path(name))) if os.path.isdir(place.path(name)) else []

        for number, (flags, expected) in enumerate(CASES):
            files = record(f"case{number}", *WINDOW, "--profile-format", "json", "--tensor-model-parallel-size", "2", *flags, ranks=2)
            place.expect(files == ["rank_00000.json", "rank_00000.mstrace"], f"{flags}: files {files}")
            events = read_trace(place.path(f"case{number}", "rank_00000.json"), "json")
            seen = {name for name, test in FEATURES.items() if any(map(test, events))}
            place.expect(seen == expected, f"{flags}: recorded {sorted(seen)}, expected {sorted(expected)}")
            place.expect(steps(events) == [1, 2], f"{flags}: steps {steps(events)}, expected [1, 2]")

        for number, (chosen, expected) in enumerate(RANKS):
            files = record(f"ranks{number}", *WINDOW, *(["--profile-ranks", *chosen] if chosen else []), ranks=2)
            place.expect(files == [f"rank_{rank:05}.mstrace" for rank in expected], f"--profile-ranks {chosen}: files {files}")

        for form in OPEN:
            files = record(f"format.{form}", "--profile-format", form, "--profile-step-start", "2", "--profile-step-end", "3")
            place.expect(files == [f"rank_00000.{form}", "rank_00000.mstrace"], f"--profile-format {form}: files {files}")
            events = read_trace(place.path(f"format.{form}", f"rank_00000.{form}"), form)
            place.expect(steps(events) == [2] and any(map(FEATURES["kernels"], events)), f"--profile-format {form}: steps {steps(events)}")
            info = place.tool("msprof", "info", f"format.{form}/rank_00000.mstrace", "--json")
            facts = json.loads(info.stdout)["result"]["ranks"][0]["facts"]
            place.expect(facts["steps"] == [2] and facts["level"] == "level0", f"msprof info agrees on {form}", info)

        ran = place.run("--train-iters", "4", *WINDOW, "--profile-save-path", "never", "--profile-ranks", "-1")
        place.expect(ran.exit == 0 and not os.path.exists(place.path("never")), "without --profile nothing is recorded", ran)
        files = record("late", "--profile-step-start", "10", "--profile-step-end", "12")
        place.expect(files == [], f"a window after the last step records nothing: {files}")
        amounts(place)
        ask(place)
        for flags, names in ((["--profile-with-memory"], "--profile-with-cpu"), (["--profile-ranks", "1"], "--profile-ranks"),
                             (["--profile-step-start", "3", "--profile-step-end", "3"], "--profile-step-end"),
                             (["--profile-level", "level3"], "--profile-level"), (["--profile-format", "xml"], "--profile-format")):
            ran = place.run("--train-iters", "4", "--profile", *flags)
            place.expect(ran.exit == 2 and len(ran.errors) == 1 and names in ran.errors[0], f"{flags} is refused", ran)


if __name__ == "__main__":
    sys.exit(main())
