#!/usr/bin/env python3
"""Flight Recorder dumps of PyTorch jobs, fresh ones of gloo and those of tests/data/flight: msprof flight says what PyTorch's own
analyser (torch.distributed.flight_recorder) says of the first divergence, and names the planted rank (MS_PEERS_PYTHON with
PyTorch 2.13 or later; else skipped).

PyTorch's analyser takes the first rank for right where ranks disagree, so of a mismatch it names all others: the operation is
compared, and that its list of ranks and msprof's divide the group alike. Genuine gloo dumps lack the groups' members, without which it
cannot run: they are added to a copy, for it alone.

  flight_oracle_test.py [RUNS]     fresh jobs of each kind, default 1
"""
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../data/flight"))
import make_dumps  # noqa: E402

MSPROF = os.path.join(os.environ["MS_BIN"], "msprof")
PYTHON = os.environ.get("MS_PEERS_PYTHON", "")
STORED = os.path.join(HERE, "../data/flight")
FAILED = []


def expect(what, condition, seen=""):
    if not condition:
        FAILED.append(what)
        print(f"FAILED {what}: {seen}")


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    return json.loads(data) if data[:1] == b"{" else pickle.loads(data)  # our own files


def give_members(dump, world):
    """PyTorch's analyser needs the members of each group."""
    names = {tuple(entry["process_group"]) for entry in dump["entries"]}
    dump["pg_config"] = {name: {"name": name, "desc": desc, "ranks": str(list(range(world if desc == "default_pg" else 2)))} for name, desc in names}


def oracle(folder, world, scratch):
    """What PyTorch's analyser says first: (kind, sequence, group, ranks that it names)."""
    copy = tempfile.mkdtemp(dir=scratch)
    for name in os.listdir(folder):
        dump = load(os.path.join(folder, name))
        if not all(dump["pg_config"]):
            give_members(dump, world)
        rank = re.search(r"(\d+)(\.json)?$", name).group(1)
        with open(os.path.join(copy, f"trace_{rank}"), "wb") as file:
            pickle.dump(dump, file)
    ran = subprocess.run([PYTHON, "-m", "torch.distributed.flight_recorder.fr_trace", "--allow-incomplete-ranks", copy], cwd=scratch,
                         capture_output=True, text=True, check=False)
    text = ran.stdout + ran.stderr
    group = re.search(r"group info: (.*)", text)
    missing = re.search(r"Not all ranks joining collective, sequence number: (\d+)", text)
    if missing:
        ranks = re.search(r"missing ranks: \{(.*)\}", text).group(1)
        return "absent", int(missing.group(1)), group.group(1), sorted(map(int, ranks.split(",")))
    errors = re.search(r"Collective sequence number: (\d+) has errors", text)
    if errors:
        return "mismatch", int(errors.group(1)), group.group(1), sorted(map(int, re.findall(r"Culprit rank (\d+)", text)))
    no_dump = re.search(r"missed FR dumps from ranks \(\{(.*)\}\)", text)
    if no_dump:
        return "no_record", None, None, sorted(map(int, no_dump.group(1).split(",")))
    return "none", None, None, text[-2000:]


def msprof(folder, world):
    ran = subprocess.run([MSPROF, "flight", folder, "--json", "--world-size", str(world)], capture_output=True, text=True, check=False)
    expect(f"{folder}: exit 0", ran.returncode == 0, ran.stderr)
    return json.loads(ran.stdout)["result"]["findings"]


def check(kind, folder, world, scratch, has_oracle=True):
    findings = msprof(folder, world)
    if not findings:
        return expect(f"{kind}: a finding", False)
    first = findings[0]
    culprits = json.loads(first["ranks"])
    expect(f"{kind}: the planted rank is named", culprits == [make_dumps.CULPRIT[kind]], first)
    if not has_oracle:
        return None
    said, sequence, group, ranks = oracle(folder, world, scratch)
    print(f"{kind}: PyTorch: {said} {sequence} {group} {ranks}; msprof: {first['fault']} {first['sequence']} {first['group']} {culprits}")
    expect(f"{kind}: the same kind", said == first["fault"], (said, first))
    if sequence is not None:
        expect(f"{kind}: the same operation", (sequence, group) == (first["sequence"], first["group"]), (sequence, group, first))
    divided = ranks == culprits or sorted(ranks + culprits) == list(range(world))  # the first rank may be the wrong one
    expect(f"{kind}: the same ranks", divided, (ranks, culprits))
    return None


def main():
    if not PYTHON or subprocess.run([PYTHON, "-c", "import torch.distributed.flight_recorder"], capture_output=True, check=False).returncode != 0:
        print("SKIPPED: needs MS_PEERS_PYTHON with PyTorch and its analyser of flight records")
        sys.exit(77)
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    worlds = {**make_dumps.GLOO, "nccl_pipeline": 3, "nccl_shape": 2, "nccl_stuck": 3}
    with tempfile.TemporaryDirectory() as scratch:
        for kind, world in worlds.items():
            # Its matching of single messages takes p2p_seq_id for the same on both ends: no oracle for a pipeline.
            check(kind, os.path.join(STORED, kind), world, scratch, has_oracle=kind != "nccl_pipeline")
        for run in range(runs):
            for kind, world in make_dumps.GLOO.items():
                folder = os.path.join(scratch, f"fresh{run}")
                made = subprocess.run([PYTHON, os.path.join(STORED, "make_dumps.py"), folder, kind], capture_output=True, text=True, timeout=300, check=False)
                expect(f"{kind}: a fresh job", made.returncode == 0, made.stderr)
                check(kind, os.path.join(folder, kind), world, scratch)
    print(f"{len(FAILED)} failed")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
