#!/usr/bin/env python3
"""Writes the traces of a small data-parallel job as PyTorch's profiler does (Kineto JSON), a file a rank.

  make_traces.py FOLDER [--ranks 4] [--steps 3] [--slow-rank N] [--slower 1.5]

Each step of a rank runs a forward and a backward GEMM and all-reduces the gradients; the matrix products of the slow rank take
`slower` times as long.
"""
import argparse
import json
import pathlib

FORWARD_US, BACKWARD_US, ALLREDUCE_US, UPDATE_US = 400, 800, 150, 60


class Rank:
    """The events of one rank; the host runs ahead of the device by the length of a launch."""

    def __init__(self, rank, ranks):
        self.rank, self.ranks, self.events, self.correlation, self.sequence = rank, ranks, [], 0, 0

    def add(self, category, name, start, end, tid, pid=1000, **args):
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": end - start, "args": args})

    def launch(self, operator, kernel, called, start, end, stream=7, **args):
        self.correlation += 1
        self.add("cpu_op", operator, called, called + 12, 1000)
        self.add("cuda_runtime", "cudaLaunchKernel", called + 4, called + 10, 1000, correlation=self.correlation)
        self.add("kernel", kernel, start, end, stream, pid=0, device=0, stream=stream, correlation=self.correlation, **args)

    def allreduce(self, called, start, end):
        self.launch("c10d::allreduce_", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", called, start, end, 20,
                    **{"Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "Group size": self.ranks,
                       "dtype": "Float", "Process Group Name": "0", "Process Group Description": "default_pg",
                       "Process Group Ranks": str(list(range(self.ranks))), "Seq": self.sequence})
        self.sequence += 1

    def write(self, folder):
        group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": self.ranks,
                 "ranks": list(range(self.ranks))}
        trace = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Example device"}],
                 "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.ranks, "pg_count": 1, "pg_config": [group]},
                 "displayTimeUnit": "ms", "traceEvents": self.events}
        (folder / f"rank{self.rank}.pt.trace.json").write_text(json.dumps(trace))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument("--slower", type=float, default=1.5)
    flags = parser.parse_args()
    flags.folder.mkdir(parents=True)
    ranks = [Rank(rank, flags.ranks) for rank in range(flags.ranks)]
    begin = 1000
    for step in range(flags.steps):
        # Rank r is a few microseconds faster or slower, as real ones are.
        computed = {}
        for rank in ranks:
            factor = flags.slower if rank.rank == flags.slow_rank else 1 + 0.01 * rank.rank
            forward = begin + 20 + round(FORWARD_US * factor)
            backward = forward + 5 + round(BACKWARD_US * factor)
            rank.launch("aten::mm", "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", begin + 5, begin + 20, forward)
            rank.launch("MmBackward0", "sm80_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize128x128x64", begin + 20, forward + 5, backward)
            computed[rank.rank] = backward
        done = max(computed.values()) + 10 + ALLREDUCE_US  # of all ranks together
        for rank in ranks:
            rank.allreduce(begin + 35, computed[rank.rank] + 10, done)
            rank.launch("Optimizer.step#AdamW.step", "multi_tensor_apply_kernel", begin + 50, done + 5, done + 5 + UPDATE_US)
            rank.add("user_annotation", f"ProfilerStep#{step + 10}", begin, done + 5 + UPDATE_US, 1000)
        begin = done + 5 + UPDATE_US + 10
    for rank in ranks:
        rank.write(flags.folder)


if __name__ == "__main__":
    main()
