#!/usr/bin/env python3
"""32 ranks over TCP: the connections of each rank after its first steps, counted from outside, are not a full mesh."""
import os
import sys

import training

RANKS = 32
TCP = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]


def connections(pid):
    """Remote TCP ports on the loopback to which a process is connected: one for each connection of the transport."""
    inodes = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd") if os.path.islink(f"/proc/{pid}/fd/{fd}")}
    count = 0
    for line in training.read(f"/proc/{pid}/net/tcp").splitlines()[1:]:
        fields = line.split()
        if fields[3] == "01" and f"socket:[{fields[9]}]" in inodes:
            count += 1
    return count


def main():
    with training.workplace() as place:
        place.make_data()
        flags = ["--train-iters", "1000000", "--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2",
                 "--use-distributed-optimizer", "--global-batch-size", "16", "--distributed-timeout-minutes", "5"]
        job = place.start(*flags, ranks=RANKS, wrap=training.NOTE_PID, mpirun=TCP)
        job.wait_for_line("iteration 2/", limit_s=500)
        counts = [connections(job.pid(rank)) for rank in range(RANKS)]
        job.kill()
        print("connections of each rank:", counts)
        # Peers: 1 of TP, 1 of PP, 7 of DP, 3 of the model, at most 9 by powers of two for agreements of all ranks; and mpirun's.
        place.expect(0 < max(counts) <= 20, f"the most is {max(counts)} of {RANKS - 1}")


if __name__ == "__main__":
    sys.exit(main())
