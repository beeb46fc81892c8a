#!/usr/bin/env python3
"""Dumps of PyTorch's Flight Recorder, of jobs of 2 to 4 ranks that go wrong; tests/cli/cases/msprof_flight.sh reads them.

  make_dumps.py FOLDER [KIND...]

KIND gloo_*: genuine, of PyTorch 2.13 with gloo on CPUs (which records no send or recv). nccl_*: in the form that the same version writes
for NCCL (torch/csrc/distributed/c10d/FlightRecorderDetail.hpp), made here, without PyTorch."""
import json
import multiprocessing
import os
import pickle
import socket
import sys
import time

GLOO = {"gloo_stuck": 3, "gloo_mismatch": 4, "gloo_dead": 4}  # ranks; of another shape gloo aborts the process
CULPRIT = {"gloo_stuck": 2, "gloo_mismatch": 1, "gloo_dead": 2, "nccl_pipeline": 2, "nccl_shape": 0, "nccl_stuck": 1}
STEPS = 3


def gloo_rank(kind, rank, world, folder, port):
    from datetime import timedelta
    os.environ.update(TORCH_FR_BUFFER_SIZE="100", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import torch
    import torch._C._distributed_c10d as c10d
    import torch.distributed as dist
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=3))
    pair = dist.new_group([0, 1], group_desc="tensor_parallel")
    x = torch.ones(4, 8)
    wrong = rank == CULPRIT[kind]
    try:
        for _ in range(STEPS):
            if rank < 2:
                dist.broadcast(x, src=0, group=pair)
            dist.all_reduce(x)
        if wrong and kind == "gloo_dead":
            os._exit(1)
        if wrong and kind == "gloo_stuck":
            time.sleep(5)
        elif wrong and kind == "gloo_mismatch":
            dist.all_gather([torch.zeros(4, 8) for _ in range(world)], x)
        else:
            dist.all_reduce(x)
    except RuntimeError:
        pass  # timed out, or a peer has gone
    if kind == "gloo_mismatch":
        name, dump = f"rank_{rank}.json", c10d._dump_fr_trace_json()
    else:
        name, dump = f"nccl_trace_rank_{rank}", c10d._dump_fr_trace(includeStackTraces=False)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(dump)
    os._exit(0)


def gloo_job(kind, folder):
    os.makedirs(folder)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    ranks = [spawn.Process(target=gloo_rank, args=(kind, rank, GLOO[kind], folder, port)) for rank in range(GLOO[kind])]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()


class Nccl:
    """The recorder of a rank."""

    def __init__(self, world, first_ns):
        self.world, self.now, self.entries, self.collectives, self.messages = world, first_ns, [], 0, 0

    def add(self, name, sizes, state="completed", out=None, line=41):
        is_p2p = name.startswith(("send", "recv"))
        self.collectives += not is_p2p
        self.messages += is_p2p
        self.now += 1_000_000
        at = {"scheduled": (None, None), "started": (self.now + 1000, None), "completed": (self.now + 1000, self.now + 500_000)}[state]
        self.entries.append({
            "frames": [{"name": "all_reduce", "filename": "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", "line": 2500},
                       {"name": "train_step", "filename": "/home/user/train.py", "line": line}],
            "record_id": len(self.entries), "pg_id": 0, "process_group": ("0", "default_pg"), "thread_name": "python", "thread_id": "1",
            "collective_seq_id": self.collectives, "p2p_seq_id": self.messages, "op_id": len(self.entries) + 1,
            "profiling_name": f"nccl:{name}", "time_created_ns": self.now, "input_sizes": [sizes], "input_dtypes": ["Float"],
            "output_sizes": [out or sizes], "output_dtypes": ["Float"], "state": state, "time_discovered_started_ns": at[0],
            "time_discovered_completed_ns": at[1], "retired": state == "completed", "timeout_ms": 600000, "is_p2p": is_p2p})

    def dump(self):
        ranks = str(list(range(self.world)))
        return {"version": "2.10", "comm_lib_version": "2.27.5", "nccl_comm_state": {}, "entries": self.entries,
                "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
                "pg_status": {"0": {"last_enqueued_collective": str(self.collectives), "last_started_collective": "0", "last_completed_collective": "0"}}}


def nccl_job(kind, folder):
    """pipeline: rank 0 sends to 1, 1 to 2, and back; 2 is stuck. shape: of two ranks, 0 departs from its habit. stuck: one of three."""
    os.makedirs(folder)
    world = 2 if kind == "nccl_shape" else 3
    start_ns = 1_700_000_000_000_000_000
    for rank in range(world):
        recorder = Nccl(world, start_ns + rank * 1000)
        for step in range(STEPS + 1):
            last, wrong = step == STEPS, rank == CULPRIT[kind]
            if kind == "nccl_pipeline":
                if wrong and last:
                    continue
                waits = "started" if last else "completed"
                if rank > 0:
                    recorder.add(f"recv {rank}<-{rank - 1}", [2, 16], line=60)
                if rank < 2:
                    recorder.add(f"send {rank}->{rank + 1}", [2, 16], waits if rank == 1 else "completed", line=61)
                    recorder.add(f"recv {rank}<-{rank + 1}", [2, 16], waits, line=62)
                if rank > 0 and not last:
                    recorder.add(f"send {rank}->{rank - 1}", [2, 16], line=63)
                continue
            recorder.add("all_reduce", [128])
            if wrong and last and kind == "nccl_stuck":
                continue
            recorder.add("all_reduce", [32] if wrong and last else [64], "scheduled" if last else "completed", line=44)
        dump = recorder.dump()
        if kind == "nccl_shape":
            with open(os.path.join(folder, f"rank_{rank}.json"), "w", encoding="utf-8") as file:
                json.dump(dump, file)
        else:
            with open(os.path.join(folder, f"_dump_{rank}"), "wb") as file:
                pickle.dump(dump, file, protocol=2)


def make(kind, folder):
    (gloo_job if kind in GLOO else nccl_job)(kind, folder)


def main():
    for kind in sys.argv[2:] or CULPRIT:
        make(kind, os.path.join(sys.argv[1], kind))


if __name__ == "__main__":
    main()
