#!/usr/bin/env python3
"""Makes the torch_dist checkpoints of tests/data/megatron_dist_experts with genuine megatron-core: models with experts, filled as
make_megatron_tree.py fills those of the same name, saved by its own dist_checkpointing on the CPU.

  make_megatron_dist_experts.py [FOLDER]     needs torch and megatron-core; made with 2.13.0 and 0.16.1
"""
import os
import pathlib
import shutil
import sys

import torch
import torch.utils.serialization

import make_megatron_tree as megatron
from megatron.core import dist_checkpointing, parallel_state

# Tree; what is otherwise; whether experts and the halves of linear_fc1 get keys of their own; whether optimizer state is there.
CHECKPOINTS = [
    # Layers that are alike, stacked; the distributed optimizer.
    ("moe_ep2_distributed", {"num_experts": 2, "data_parallel_size": 2}, False, True),
    # Layers that are not; latent attention under the names of megatron-core's own layers; a layer behind the model.
    ("moe_latent_tp2_ep2_etp1", {"num_experts": 2}, True, False),
]


def save_rank(args, folder, singles, with_optimizer):
    chunks, _, optimizer = megatron.fill_rank(args)
    metadata = {"singleton_local_shards": singles, "chained_optim_avoid_prefix": True,
                "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    if args.use_distributed_optimizer:
        metadata["distrib_optim_sharding_type"] = "fully_reshardable"
        metadata["distrib_optim_fully_reshardable_mem_efficient"] = False
    bare = chunks[0].module.module
    model = bare.sharded_state_dict(metadata=metadata)
    state = {"model": model, "args": args, "iteration": megatron.ITERATION, "checkpoint_version": 3.0,
             "opt_param_scheduler": megatron.scheduler_state()}
    if with_optimizer:
        state["optimizer"] = optimizer.sharded_state_dict({"model": model}, metadata=metadata)
    del metadata["dp_cp_group"]
    dist_checkpointing.save(state, folder, content_metadata=metadata)


def main():
    torch.utils.serialization.config.save.storage_alignment = 8  # not 64: small files
    here = pathlib.Path(__file__).resolve().parent
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "megatron_dist_experts"
    shutil.rmtree(root, ignore_errors=True)
    for name, otherwise, singles, with_optimizer in CHECKPOINTS:
        args = megatron.make_args({**megatron.TREES[name], **otherwise})
        folder = f"iter_{megatron.ITERATION:07d}"
        (root / name / folder).mkdir(parents=True)
        os.chdir(root / name)  # .metadata keeps the path as it was given
        megatron.run_ranks(args, lambda: save_rank(args, folder, singles, with_optimizer), name)
        pathlib.Path("latest_checkpointed_iteration.txt").write_text(str(megatron.ITERATION))


if __name__ == "__main__":
    main()
