#!/usr/bin/env python3
"""msprof record: traces of third-party MPI programs can be read by every verb; mstrain is started with its own flags.

  record_test.py MPI_PROGRAM
"""
import csv
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

MSPROF = os.path.join(os.environ["MS_BIN"], "msprof")
PROGRAM = sys.argv[1]
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "3"]
FAILED = []


def run(*args):
    ran = subprocess.run([MSPROF, *args], capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def expect(what, condition, seen=""):
    if not condition:
        FAILED.append(what)
        print(f"FAILED {what}: {seen}")


def rows(*args):
    return list(csv.reader(io.StringIO(run(*args)[1])))[1:]


def check_operations():
    status, out, err = run("record", "-o", "traces", "--", *MPIRUN, PROGRAM)
    expect("the program and analyze end well", status == 0 and "3 ranks, 3 files" in out, out + err)
    counts = dict(rows("query", "traces", "SELECT name, count(*) FROM events WHERE cat = 'kernel' AND name != 'outside MPI' GROUP BY 1"))
    wanted = {"send(world tag 1)": 9, "recv(world tag 1)": 9, "send(world tag 6 of 64)": 12, "recv(world tag 6 of 64)": 12,
              "send(world tag 3)": 3, "recv(world tag 3)": 3, "send(world tag 9)": 1, "recv(world tag 9)": 1, "allreduce(world)": 3,
              "gather(world)": 3, "communicator(world)": 3, "communicator(world.1/0)": 3, "alltoall(world.1/0)": 3,
              "broadcast(world.1/0.1/0)": 2, "broadcast(world.1/0.1/1)": 1, "barrier(world)": 60}
    expect("every operation once", counts == {name: str(n) for name, n in wanted.items()}, counts)
    links = json.loads(run("links", "traces", "--json")[1])["result"]["cross_rank"]["links"]
    # 3 x 64, 4 x 32 and 8 doubles around the ring; 4 more from rank 0 to rank 1
    seen = {link: (values["messages"], values["bytes"]) for link, values in links.items()}
    expect("every message, with the bytes that came", seen == {"0-1": (9, 2656), "1-2": (8, 2624), "2-0": (8, 2624)}, seen)
    calls = dict(rows("query", "traces", "SELECT name, count(*) FROM events WHERE cat = 'user_annotation' GROUP BY 1"))
    expect("calls by their names", calls.get("MPI_Barrier") == "60" and calls.get("MPI_Comm_split") == "3", calls)
    expect("of polls in a row one span", int(calls["MPI_Test"]) <= 3 * 20, calls["MPI_Test"])
    waits = rows("query", "traces", "SELECT count(*) FROM events WHERE name LIKE 'outside MPI' AND dur < 0")
    expect("time runs forwards", waits == [["0"]], waits)


def check_blame():
    os.environ["OMPI_MCA_mca_base_env_list"] = "OF_THE_USER=1"  # mpirun then refuses -x
    status, _, err = run("record", "-o", "slow", "--level", "level0", "--", *MPIRUN, PROGRAM, "--slow", "2")
    del os.environ["OMPI_MCA_mca_base_env_list"]
    expect("a slow program is recorded", status == 0, err)
    slow = json.loads(run("ranks", "slow", "--json")[1])["result"]["cross_rank"]["slow_ranks"]
    expect("the slow rank is named", [rank["rank"] for rank in slow] == [2], slow)
    calls = rows("query", "slow", "SELECT count(*) FROM events WHERE cat = 'user_annotation'")
    expect("level0 keeps no names of calls", calls == [["0"]], calls)


def check_ranks_and_exits():
    status, out, err = run("record", "-o", "some", "--rank", "0,2", "--json", "--", *MPIRUN, PROGRAM, "--exit", "3")
    expect("the program's exit code", status == 3 and "ended with exit code 3" in err, (status, err))
    expect("its trace is kept and analysed", json.loads(out)["command"] == "analyze", out)
    expect("only the ranks asked for", sorted(os.listdir("some")) == ["rank_00000.mstrace", "rank_00002.mstrace"], os.listdir("some"))
    for what, args, code, text in (
            ("a folder with traces", ["-o", "some", "--", PROGRAM], 2, "already contains traces"),
            ("a program that is not there", ["-o", "new", "--", "./nosuch"], 2, "cannot start ./nosuch"),
            ("a program without MPI", ["-o", "new", "--", "true"], 2, "contains no trace"),
            ("steps of another program", ["-o", "new", "--step", "1-2", "--", PROGRAM], 2, "only mstrain records steps"),
            ("a level of mstrain's", ["-o", "new", "--level", "level2", "--", PROGRAM], 2, "only mstrain has level2")):
        status, _, err = run("record", *args)
        expect(what, status == code and text in err and len(err.splitlines()) == 1, (status, err))
    with open("file", "w", encoding="utf-8"):
        pass
    status, _, err = run("record", "-o", "file/in", "--", *MPIRUN, PROGRAM)
    expect("a folder that cannot be made is an error before the program starts",
           status == 4 and "file/in" in err and "-o" in err and len(err.splitlines()) == 1, (status, err))


def check_signal():
    with subprocess.Popen([MSPROF, "record", "-o", "ended", "--", "sleep", "60"], stderr=subprocess.PIPE, text=True) as job:
        while subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, check=False).returncode != 0 and job.poll() is None:
            time.sleep(0.01)
        job.send_signal(signal.SIGTERM)
        expect("a signal is passed on", job.wait(timeout=30) == 128 + signal.SIGTERM, job.returncode)


def check_mstrain():
    stand_in = os.path.join(os.getcwd(), "mstrain")  # prints its arguments; the test mstrain.profile runs the real one
    with open(stand_in, "w", encoding="utf-8") as script:
        script.write('#!/bin/sh\necho "$@"\n')
    os.chmod(stand_in, 0o755)
    _, out, _ = run("record", "-o", "mine", "--step", "4-6", "--rank", "0-1", "--level", "level1", "--", "env", "A_B=1", stand_in, "--data_path", "x_y")
    wanted = f"--profile --profile-save-path {os.getcwd()}/mine --profile-ranks 0 1 --profile-level level1 --profile-step-start 4 --profile-step-end 7"
    expect("mstrain by its flags, its own as they were", out.strip() == f"{wanted} --data_path x_y", out)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    check_operations()
    check_blame()
    check_ranks_and_exits()
    check_signal()
    check_mstrain()
sys.exit(1 if FAILED else 0)
