#!/usr/bin/env python3
"""Two network namespaces as two nodes with two ranks each: what they send each other in a step is what --print-plan says, and
the loss is that of four ranks on one node. Skipped where namespaces cannot be made."""
import json
import os
import re
import shutil
import subprocess
import sys

import training

RANKS, PER_NODE = 4, 2
STEPS = (2, 10)  # of two runs, whose difference is free of what starting costs
HEADERS = 0.03  # of TCP and of MPI, beside the payload, and what logging and the watchdog send
LAYOUTS = {
    "dp4": [],
    "tp2 dp2": ["--tensor-model-parallel-size", "2"],
    "tp2 dp2 zero": ["--tensor-model-parallel-size", "2", "--use-distributed-optimizer"],
    "dp2 pp2": ["--pipeline-model-parallel-size", "2"],
}
MODEL = ("--num-layers 4 --hidden-size 128 --num-attention-heads 4 --ffn-hidden-size 256 --swiglu --normalization RMSNorm "
         "--position-embedding-type rope --disable-bias-linear --hidden-dropout 0 --attention-dropout 0 --seq-length 64 "
         "--micro-batch-size 1 --global-batch-size 8 --lr 1e-3 --lr-decay-style constant --eval-iters 0 --peak-tflops 0.1 "
         "--threads-per-rank 1 --mock-data --vocab-size 256 --tokenizer-type NullTokenizer").split()
# As a remote shell: NODE COMMAND. A node has a host name of its own.
AGENT = """#!/bin/bash
node=$1; shift
exec ip netns exec "$node" unshare --uts bash -c "hostname $node; $*"
"""


def ip(*arguments):
    return subprocess.run(["ip", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Nodes:
    """Namespaces joined by a bridge, whose addresses this host can reach."""

    def __init__(self, place):
        number = os.getpid() % 60000
        self.bridge, self.names = f"msb{number}", [f"ms{number}n{i}" for i in (1, 2)]
        self.subnet = f"10.{200 + number % 50}.{number // 50 % 250}"
        self.agent = place.path("agent")
        with open(self.agent, "w") as file:
            file.write(AGENT)
        os.chmod(self.agent, 0o755)

    def __enter__(self):
        steps = [["link", "add", self.bridge, "type", "bridge"], ["addr", "add", f"{self.subnet}.254/24", "dev", self.bridge],
                 ["link", "set", self.bridge, "up"]]
        for i, name in enumerate(self.names, 1):
            steps += [["netns", "add", name],
                      ["link", "add", f"{name}v", "type", "veth", "peer", "name", "eth0", "netns", name],
                      ["link", "set", f"{name}v", "master", self.bridge, "up"],
                      ["-n", name, "addr", "add", f"{self.subnet}.{i}/24", "dev", "eth0"],
                      ["-n", name, "link", "set", "eth0", "up"], ["-n", name, "link", "set", "lo", "up"]]
        for step in steps:
            ran = ip(*step)
            if ran.returncode != 0:
                self.__exit__()
                print(f"SKIPPED: ip {' '.join(step)}: {ran.stdout.strip()}")
                sys.exit(77)
        return self

    def __exit__(self, *_):
        for name in self.names:
            ip("netns", "del", name)
        ip("link", "del", self.bridge)

    def launcher(self):
        hosts = ",".join(f"{name}:{PER_NODE}" for name in self.names)
        net = f"{self.subnet}.0/24"
        return ["mpirun", "--quiet", "--bind-to", "none", "--mca", "plm", "rsh", "--mca", "plm_rsh_agent", self.agent, "--mca",
                "oob_tcp_if_include", net, "--mca", "btl", "tcp,vader,self", "--mca", "btl_tcp_if_include", net, "--host", hosts, "-x", "PATH"]

    def sent_bytes(self):
        counts = []
        for name in self.names:
            text = subprocess.run(["ip", "netns", "exec", name, "cat", "/sys/class/net/eth0/statistics/tx_bytes"],
                                  stdout=subprocess.PIPE, text=True, check=True).stdout
            counts.append(int(text))
        return counts


def last_loss(place, ran):
    found = re.findall(r"lm loss: (\S+)", ran.stderr)
    place.expect(ran.exit == 0 and found, "a run ends with a loss", ran)
    return found[-1] if found else None


def planned_bytes(place, flags):
    """What each node sends to the other in a step. Every rank of a stage sends the same."""
    ran = place.run("--train-iters", "1", *flags, "--print-plan", "--json", "--plan-world-size", str(RANKS),
                    "--plan-ranks-per-node", str(PER_NODE), model=MODEL, data=None)
    place.expect(ran.exit == 0, "a plan", ran)
    stages = json.loads(ran.stdout)["stages"]
    of_stage = [sum(row["bytes_to_other_nodes"] for row in stage["communication"]) for stage in stages]
    return [PER_NODE * of_stage[node * len(stages) // 2] for node in (0, 1)]


def main():
    if shutil.which("ip") is None:
        print("SKIPPED: needs ip (iproute2)")
        sys.exit(77)
    with training.workplace() as place, Nodes(place) as nodes:
        for name, flags in LAYOUTS.items():
            planned, sent = planned_bytes(place, flags), []
            for steps in STEPS:
                before = nodes.sent_bytes()
                run = [*flags, "--train-iters", str(steps), "--log-interval", str(steps)]
                ran = place.run(*run, ranks=RANKS, model=MODEL, data=None, launcher=nodes.launcher())
                loss = last_loss(place, ran)
                sent.append([after - b for after, b in zip(nodes.sent_bytes(), before)])
            here = place.run(*run, ranks=RANKS, model=MODEL, data=None)
            place.expect(loss == last_loss(place, here), f"{name}: the loss on two nodes is {loss}", here)
            a_step = [(more - less) / (STEPS[1] - STEPS[0]) for less, more in zip(*sent)]
            for node in (0, 1):
                print(f"{name:14} node {node}: planned {planned[node]:9} sent {a_step[node]:11.0f} bytes a step")
                place.expect(planned[node] <= a_step[node] <= planned[node] * (1 + HEADERS),
                             f"{name}: node {node} sends {a_step[node]:.0f} bytes a step, planned are {planned[node]}")


if __name__ == "__main__":
    sys.exit(main())
