#!/usr/bin/env python3
"""Writes a synthetic training job as Kineto traces, like those of PyTorch for ranks with one GPU each, for pictures and tests of the report.

  make_job.py FOLDER [--ranks 8] [--steps 5] [--layers 12] [--slow-rank 5]

Each step loads data, then runs nested Python frames, modules, operators and launches for each layer forward and backward, and
their kernels, an all-reduce of gradients on a stream of its own, and an optimizer; one rank's GEMMs take longer, so that the
others wait for it. Memory grows forward and shrinks backward. All from fixed numbers: the same arguments give the same files.
"""
import argparse
import json
import os
import random


class Rank:
    def __init__(self, rank, ranks, slow):
        self.rank, self.ranks, self.slow = rank, ranks, slow
        self.events, self.host, self.device, self.comm, self.correlation, self.allocated = [], 0.0, 0.0, 0.0, 0, 2_000_000_000
        self.random = random.Random(rank)

    def add(self, category, name, start, end, **more):
        event = {"ph": "X", "cat": category, "name": name, "pid": 100, "tid": 100, "ts": round(start, 3), "dur": round(end - start, 3), **more}
        self.events.append(event)
        return event

    def memory(self, size):
        self.allocated += size
        self.events.append({"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 100, "tid": 100, "ts": round(self.host, 3),
                            "args": {"Total Allocated": self.allocated, "Total Reserved": 6_000_000_000, "Bytes": size,
                                     "Addr": 1 << 20, "Device Type": 1, "Device Id": 0}})

    def launch(self, operator, kernel, length, category="kernel", stream=7, **more):
        """One operator with its runtime call, and what it launches."""
        start, self.correlation = self.host, self.correlation + 1
        call = start + 4
        self.add("cuda_runtime", "cudaLaunchKernel" if category == "kernel" else "cudaMemcpyAsync", call, call + 5,
                 args={"correlation": self.correlation})
        self.host = call + 7 + self.random.random() * 3
        self.add("cpu_op", operator, start, self.host)
        begin = max(self.device, call + 8)
        self.device = begin + length
        self.add(category, kernel, begin, self.device, pid=0, tid=stream,
                 args={"device": 0, "stream": stream, "correlation": self.correlation, **more})

    def gemm(self, length):
        slower = 1.35 if self.rank == self.slow else 1 + 0.04 * self.random.random()
        self.launch("aten::mm", "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_128x128_32x5_nn>(Params)", length * slower)

    def frame(self, name, body, category="python_function"):
        start = self.host
        self.host += 3
        body()
        self.host += 2
        self.add(category, name, start, self.host)

    def layer(self, i, backward):
        size = 48_000_000

        def attention():
            self.launch("aten::native_layer_norm", "void at::native::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)", 14)
            self.gemm(60)
            self.launch("aten::scaled_dot_product_attention", "flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>", 75)
            self.gemm(40)

        def mlp():
            self.gemm(90)
            self.launch("aten::gelu", "void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernel>(int, float)", 18)
            self.gemm(90)

        self.memory(-size if backward else size)
        scale = "autograd::" if backward else "nn.Module: "
        self.frame(f"{scale}Block_{i}", lambda: (self.frame(f"{scale}Attention_{i}", attention), self.frame(f"{scale}MLP_{i}", mlp)))

    def step(self, number, layers, meet):
        begin = self.host
        self.frame("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", lambda: setattr(self, "host", self.host + 260), "user_annotation")
        self.launch("aten::copy_", "Memcpy HtoD (Pinned -> Device)", 40, "gpu_memcpy", bytes=16_000_000, **{"memory bandwidth (GB/s)": 20.0})
        self.frame("train.py(41): forward", lambda: [self.layer(i, False) for i in range(layers)])
        self.frame("train.py(44): backward", lambda: [self.layer(i, True) for i in reversed(range(layers))])
        ready = self.device
        end = meet(ready)
        self.correlation += 1
        self.add("cuda_runtime", "cudaLaunchKernelExC", self.host, self.host + 6, args={"correlation": self.correlation})
        self.add("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)", ready, end, pid=0, tid=20,
                 args={"device": 0, "stream": 20, "correlation": self.correlation, "Collective name": "allreduce", "In msg nelems": 60_000_000,
                       "Out msg nelems": 60_000_000, "dtype": "BFloat16", "Group size": self.ranks, "Process Group Name": "0",
                       "Process Group Ranks": str(list(range(self.ranks)))})
        self.device = end
        self.host += 8
        self.frame("optimizer.py(484): step", lambda: [self.launch("aten::_fused_adamw_", "void at::native::multi_tensor_apply_kernel<AdamW>(int)", 70)
                                                       for _ in range(4)])
        start = self.host
        self.host = max(self.host + 10, self.device)
        self.add("cuda_runtime", "cudaDeviceSynchronize", start + 2, self.host)
        self.host += 5
        self.add("user_annotation", f"ProfilerStep#{number}", begin, self.host)
        self.host += 2


def make(folder, ranks=8, steps=5, layers=12, slow=5):
    os.makedirs(folder, exist_ok=True)
    job = [Rank(rank, ranks, slow) for rank in range(ranks)]
    for number in range(10, 10 + steps):
        # The collective ends together, after the last arrival: a dry run of each rank says when that is.
        arrivals = []
        for rank in job:
            saved = (len(rank.events), rank.host, rank.device, rank.correlation, rank.allocated, rank.random.getstate())
            rank.step(number, layers, lambda ready: arrivals.append(ready) or ready)
            del rank.events[saved[0]:]
            _, rank.host, rank.device, rank.correlation, rank.allocated, state = saved
            rank.random.setstate(state)
        end = max(arrivals) + 320
        for rank in job:
            rank.step(number, layers, lambda ready: end)
    for rank in job:
        with open(os.path.join(folder, f"rank{rank.rank}.json"), "w", encoding="utf-8") as file:
            json.dump({"distributedInfo": {"backend": "nccl", "rank": rank.rank, "world_size": ranks}, "baseTimeNanoseconds": 0,
                       "traceEvents": [{"ph": "M", "name": "thread_name", "pid": 100, "tid": 100, "args": {"name": "thread 100 (python)"}},
                                       *rank.events]}, file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    for name, default in (("ranks", 8), ("steps", 5), ("layers", 12), ("slow-rank", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    make(arguments.folder, arguments.ranks, arguments.steps, arguments.layers, arguments.slow_rank)


if __name__ == "__main__":
    main()
