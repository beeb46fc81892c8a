#!/usr/bin/env python3
"""Genuine PyTorch jobs on CPUs with a planted straggler: msprof's first finding names its rank and its operator, and every
verb that looks across ranks has something to say (MS_PEERS_PYTHON with PyTorch; skipped without).

  torch_jobs_test.py
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


def main():
    if not PYTHON or subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True, check=False).returncode != 0:
        print("SKIPPED: needs MS_PEERS_PYTHON with PyTorch")
        return 77
    with tempfile.TemporaryDirectory() as root:
        for kind, ranks in (("ddp", 2), ("fsdp2", 2), ("tp", 2), ("pipeline", 4)):
            folder = os.path.join(root, kind)
            if not run_job(kind, ranks, folder):
                FAILED.append(kind)
                print(f"FAILED: the {kind} job did not run")
                continue
            slow = ranks - 1
            analysis = result_of("analyze", folder)
            first = analysis["findings"][0]
            expect(f"{kind}: the straggler is the first finding", first["worst_rank"] == slow and first["kind"] in
                   ("waiting_for_ranks", "pipeline_bubble"), analysis["findings"])
            expect(f"{kind}: with its operator", "aten::tanh" in (first["detail"] or ""), first)
            for rank in analysis["ranks"]:
                breakdown = rank["breakdown"]
                expect(f"{kind}: computing and communication", breakdown["computing_us"] > 0 and breakdown["communication_us"] > 0,
                       breakdown)
            cross = result_of("ranks", folder)["cross_rank"]
            expect(f"{kind}: operations match", cross["instances"] + cross["messages"] > 0, cross)
            expect(f"{kind}: pop", result_of("pop", folder)["pop"]["parallel_efficiency"] > 0)
            expect(f"{kind}: critical path", result_of("critical-path", folder)["success"])
            expect(f"{kind}: pipeline", (result_of("pipeline", folder)["pipeline"] is not None) == (kind == "pipeline"))
    print("FAILED" if FAILED else "as planted")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
