#!/usr/bin/env python3
"""One rank of a small PyTorch job on CPUs, profiled for three steps: for torch_jobs_test.py.

  torch_job.py KIND FOLDER RANK WORLD PORT     KIND: ddp, fsdp2, tp, pipeline

The last rank is the straggler: its blocks do more work in one operator, aten::tanh.
"""
import os
import sys

KIND, FOLDER, RANK, WORLD, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=PORT, RANK=str(RANK), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(RANK))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.profiler import ProfilerActivity, profile, schedule  # noqa: E402

HIDDEN, BATCH, MICROBATCHES = 256, 64, 8


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(HIDDEN, HIDDEN)
        self.down = torch.nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        x = torch.tanh(self.up(x))
        if RANK == WORLD - 1:
            more = x.new_ones(1024, 1024)
            for _ in range(4):
                more = torch.tanh(more)
        return self.down(x)


def training_step():
    """Returns a function that runs one step."""
    if KIND == "pipeline":
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B
        model = Block()
        runs = Schedule1F1B(PipelineStage(model, RANK, WORLD, torch.device("cpu")), n_microbatches=MICROBATCHES,
                            loss_fn=lambda out, target: out.sum())
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        data = torch.randn(BATCH, HIDDEN)

        def step():
            optimizer.zero_grad()
            if RANK == 0:
                runs.step(data)
            elif RANK == WORLD - 1:
                runs.step(target=data)
            else:
                runs.step()
            optimizer.step()
        return step

    model = torch.nn.Sequential(*[Block() for _ in range(3)])
    if KIND == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif KIND == "fsdp2":
        from torch.distributed.fsdp import fully_shard
        for block in model:
            fully_shard(block)
        fully_shard(model)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        mesh = init_device_mesh("cpu", (WORLD,))
        for block in model:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step():
        optimizer.zero_grad()
        model(torch.randn(BATCH, HIDDEN)).sum().backward()
        optimizer.step()
    return step


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=RANK, world_size=WORLD)
    step = training_step()
    path = os.path.join(FOLDER, f"rank{RANK}.json")
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=2, active=3, repeat=1), record_shapes=True,
                 on_trace_ready=lambda done: done.export_chrome_trace(path)) as profiler:
        for _ in range(5):
            step()
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
