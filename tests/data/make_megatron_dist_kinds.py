#!/usr/bin/env python3
"""Makes the torch_dist checkpoints of tests/data/megatron_dist_kinds with genuine megatron-core: the kinds in which its distributed optimizer
keeps state, beside those of make_megatron_dist_experts.py, of models that are filled as make_megatron_tree.py fills those of the same name.

  make_megatron_dist_kinds.py [FOLDER [CHECKPOINT ...]]     needs torch and megatron-core; made with 2.13.0 and 0.16.1, those of the
                                                            kind fully_sharded_model_space, which that cannot write or read any
                                                            more, with 0.12.2 (PYTHONPATH names a copy of it)
"""
import functools
import os
import pathlib
import shutil
import sys

import numpy
import torch
import torch.utils.serialization
from megatron.core import package_info
from megatron.core.transformer import multi_latent_attention

OLD = (package_info.MAJOR, package_info.MINOR) < (0, 14)


def let_old_megatron_run():
    """What make_megatron_tree.py asks megatron-core for, and that asks numpy and torch for, and is not there any more or yet."""
    for name in ("TELinear", "TEColumnParallelLinear"):
        setattr(multi_latent_attention, name, type(name, (), {}))
    numpy.product = numpy.prod
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    from torch.distributed.checkpoint.filesystem import SerializationFormat
    filesystem_async._write_item = functools.partial(filesystem_async._write_item, serialization_format=SerializationFormat.TORCH_SAVE)
    from megatron.core.models.gpt import GPTModel
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
    own = GPTModel.__init__

    def without_stage(self, *args, vp_stage=None, **kwargs):
        own(self, *args, **kwargs)

    def dummy_values(self):
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                self.optimizer.state[parameter] = {moment: torch.zeros_like(parameter) for moment in ("exp_avg", "exp_avg_sq")}

    GPTModel.__init__ = without_stage
    DistributedOptimizer._init_optimizer_states_with_dummy_values = dummy_values


if OLD:
    let_old_megatron_run()
import make_megatron_tree as megatron  # noqa: E402
from megatron.core import dist_checkpointing, parallel_state  # noqa: E402

# Checkpoint: the tree whose model it is, what is otherwise, and the kind.
CHECKPOINTS = {
    # Word embeddings have a copy, in a bucket of its own; the boundaries of dp cut through parameters.
    "buckets_tied_pp2": ("tied_pp2_distributed", {}, "dp_reshardable"),
    # Two optimizers, each of ranks of its own.
    "buckets_moe_ep2": ("moe_ep2_distributed", {"num_experts": 2}, "dp_reshardable"),
    # Several buckets on the first stage, an uneven pipeline.
    "buckets_tp2_pp2": ("swiglu_tp2_pp2_distributed", {"data_parallel_size": 1}, "dp_reshardable"),
    "model_space_tp2": ("swiglu_tp2_pp2_distributed", {"pipeline_model_parallel_size": 1, "decoder_first_pipeline_num_layers": None, "num_layers": 2},
                        "fully_sharded_model_space"),
    # The state of each of two optimizers under a number.
    "model_space_moe_ep2": ("moe_ep2_distributed", {"num_experts": 2}, "fully_sharded_model_space"),
}


def save_rank(args, folder, kind):
    chunks, _, optimizer = megatron.fill_rank(args)
    metadata = {"distrib_optim_sharding_type": kind, "chained_optim_avoid_prefix": True,
                "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    model = chunks[0].module.module.sharded_state_dict(metadata=metadata)
    kinds = {"sharding_type": kind} if OLD else {"metadata": metadata}
    state = {"model": model, "args": args, "iteration": megatron.ITERATION, "checkpoint_version": 3.0,
             "opt_param_scheduler": megatron.scheduler_state(),
             "optimizer": optimizer.sharded_state_dict({"model": model}, **kinds)}
    del metadata["dp_cp_group"]
    dist_checkpointing.save(state, folder, **({} if OLD else {"content_metadata": metadata}))


def main():
    torch.utils.serialization.config.save.storage_alignment = 8  # not 64: small files
    here = pathlib.Path(__file__).resolve().parent
    root = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else here / "megatron_dist_kinds"
    own = [name for name, (_, _, kind) in CHECKPOINTS.items() if OLD == (kind == "fully_sharded_model_space")]
    for name in sys.argv[2:] or own:
        tree, otherwise, kind = CHECKPOINTS[name]
        args = megatron.make_args({**megatron.TREES[tree], **otherwise})
        folder = f"iter_{megatron.ITERATION:07d}"
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name / folder).mkdir(parents=True)
        os.chdir(root / name)  # .metadata keeps the path as it was given
        megatron.run_ranks(args, lambda: save_rank(args, folder, kind), name)
        pathlib.Path("latest_checkpointed_iteration.txt").write_text(str(megatron.ITERATION))


if __name__ == "__main__":
    main()
