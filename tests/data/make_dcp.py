#!/usr/bin/env python3
"""Makes tests/data/dcp with genuine torch.distributed.checkpoint: two ranks, a tensor cut over both, and what lies beside.

  tests/data/make_dcp.py [FOLDER]    needs torch 2.x; the files committed were made with 2.13.0

Values are their own flat index, so that any misplaced element shows.
"""
import os
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

RANKS = 2


def numbered(*shape, dtype=torch.float32):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape).to(dtype)


def save(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK=str(rank), WORLD_SIZE=str(RANKS))
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (RANKS,))
    state = {
        "model": {
            "rows": distribute_tensor(numbered(5, 3), mesh, [Shard(0)]),  # 3 rows and 2
            "columns": distribute_tensor(numbered(4, 6, dtype=torch.bfloat16), mesh, [Shard(1)]),
            "cube": distribute_tensor(numbered(2, 3, 4), mesh, [Shard(2)]),
            "whole": numbered(7),
            "turned": numbered(3, 4).t(),  # its payload keeps the strides
            "scalar": torch.tensor(5.0),
            "empty": torch.empty(0, 2),
            "count": torch.tensor([1, 2, 3]),
        },
        "step": 7,
        "betas": (0.9, 0.95),
    }
    parent, name = os.path.split(os.path.abspath(folder))
    os.chdir(parent)  # .metadata keeps the path as it was given
    dcp.save(state, checkpoint_id=name)
    dist.destroy_process_group()


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "dcp")
    shutil.rmtree(folder, ignore_errors=True)
    mp.spawn(save, (folder,), RANKS)


if __name__ == "__main__":
    main()
