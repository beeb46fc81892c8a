#!/usr/bin/env python3
"""Real PyTorch jobs on CPUs with a planted straggler: msprof's first finding names its rank and its operator, and every
verb across ranks returns a result (needs MS_PEERS_PYTHON with PyTorch; else skipped).

  torch_jobs_test.py [RUNS]     runs of each job, default 1; prints how often the first finding was right
"""
import json
import os
import socket
import subprocess
import sys
import tempfile

MSPROF = os.path.join(os.environ["MS_BIN"], "msprof")
PYTHON = os.environ.get("MS_PEERS_PYTHON", "")
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_job.py")
FAILED = []


def expect(what, condition, seen=""):
    if not condition:
        FAILED.append(what)
        print(f"FAILED {what}: {seen}")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def run_job(kind, ranks, folder):
    os.makedirs(folder)
    port = free_port()
    running = [subprocess.Popen([PYTHON, JOB, kind, folder, str(rank), str(ranks), port], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL) for rank in range(ranks)]
    return all(one.wait() == 0 for one in running)


def result_of(verb, folder):
    ran = subprocess.run([MSPROF, verb, folder, "--json"], capture_output=True, text=True, check=False)
    expect(f"{verb} exits 0", ran.returncode == 0, ran.stderr)
    return json.loads(ran.stdout)["result"]


def check_job(kind, ranks, folder):
    """Checks the trace of one job; returns whether the first finding is right."""
    slow = ranks - 1
    analysis = result_of("analyze", folder)
    first = analysis["findings"][0]
    straggler = first["worst_rank"] == slow and first["kind"] in ("waiting_for_ranks", "pipeline_bubble")
    operator = "aten::tanh" in (first["detail"] or "")
    expect(f"{kind}: the straggler is the first finding", straggler, analysis["findings"])
    expect(f"{kind}: with its operator", operator, first)
    for rank in analysis["ranks"]:
        breakdown = rank["breakdown"]
        expect(f"{kind}: computing and communication", breakdown["computing_us"] > 0 and breakdown["communication_us"] > 0, breakdown)
    cross = result_of("ranks", folder)["cross_rank"]
    expect(f"{kind}: operations match", cross["instances"] + cross["messages"] > 0, cross)
    expect(f"{kind}: pop", result_of("pop", folder)["pop"]["parallel_efficiency"] > 0)
    expect(f"{kind}: critical path", result_of("critical-path", folder)["success"])
    expect(f"{kind}: pipeline", (result_of("pipeline", folder)["pipeline"] is not None) == (kind == "pipeline"))
    return straggler and operator


def main():
    if not PYTHON or subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True, check=False).returncode != 0:
        print("SKIPPED: needs MS_PEERS_PYTHON with PyTorch")
        return 77
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with tempfile.TemporaryDirectory() as root:
        for kind, ranks in (("ddp", 2), ("fsdp2", 2), ("tp", 2), ("pipeline", 4)):
            right = 0
            for run in range(runs):
                folder = os.path.join(root, f"{kind}_{run}")
                if not run_job(kind, ranks, folder):
                    FAILED.append(kind)
                    print(f"FAILED: the {kind} job did not run")
                    continue
                right += check_job(kind, ranks, folder)
            print(f"{kind}: the straggler and its operator first in {right} of {runs}")
    print("FAILED" if FAILED else "as planted")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
