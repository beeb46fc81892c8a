#!/usr/bin/env python3
"""megatron-core's own loading code reads the torch_dist checkpoints that msckpt convert writes, model and optimizer, and finds every
element in its place; PyTorch's DCP does so too (MS_PEERS_PYTHON; skipped without).

The sources are the trees of tests/data/megatron, whose values are functions of name and index. They are loaded in another layout than
they are written in: dist_checkpointing.load with strict=raise_all, into GPTModel and the optimizers of megatron-core, in processes under
gloo on the CPU (make_megatron_tree.py), as megatron/training/checkpointing.py calls it.
"""
import os
import pathlib
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../../bench/peers"), os.path.join(HERE, "../../data"), HERE]
import peers  # noqa: E402

peers.need("torch", "megatron.core")
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import make_megatron_tree as megatron  # noqa: E402
import tree_target_test as tree_test  # noqa: E402
from megatron.core import dist_checkpointing, parallel_state  # noqa: E402

TREES = pathlib.Path(HERE).parents[1] / "data" / "megatron"
# Tree; TP, PP, layers per virtual stage of the written checkpoint; TP, PP, virtual stages, DP of the run that loads;
# distributed optimizer; for experts the written EP and ETP, and those of the run that loads.
CASES = [
    ("swiglu_tp2_pp2_distributed", (2, 3, None), (1, 1, None, 2), True),
    ("swiglu_tp2_pp2_distributed", (1, 1, None), (2, 3, None, 1), False),
    ("tied_pp2_distributed", (2, 1, None), (1, 2, None, 1), True),
    ("tied_pp2_distributed", (1, 2, None), (2, 1, None, 1), False),
    ("gelu_vpp2_fp32", (2, 2, 1), (1, 2, 2, 1), True),
    ("gelu_vpp2_fp32", (1, 4, None), (2, 2, None, 1), False),
    ("qk_norm_tp2_bf16", (1, 1, None), (2, 1, None, 1), True),
    ("moe_tp2_ep2", (2, 1, None), (1, 1, None, 4), True, (2, 1), (4, 1)),
    ("moe_tp2_ep2", (1, 1, None), (2, 1, None, 2), False, (4, 3), (2, 2)),
    ("moe_ep2_distributed", (2, 2, None), (1, 1, None, 2), True, (2, 2), (2, 1)),
    ("moe_latent_tp2_ep2_etp1", (2, 1, None), (1, 1, None, 2), True, (2, 2), (2, 1)),
    ("moe_latent_tp2_ep2_etp1", (1, 2, None), (2, 1, None, 1), False, (2, 2), (2, 1)),
]


def bare(args, chunk):
    return chunk.module.module if args.bf16 else chunk.module


def let_pytorch_count(inner):
    """The distributed optimizer expects Transformer Engine's Adam, which keeps the step in the groups from the start; PyTorch's, which runs
    on a CPU, keeps it with the moments."""
    inner._init_optimizer_states_with_dummy_values()
    for held in inner.optimizer.state.values():
        held["step"] = torch.tensor(0.0)
    load = inner.load_parameter_state_from_fully_reshardable

    def load_but_steps(state):
        steps = {main: held.pop("step") for main, held in inner.optimizer.state.items()}
        with torch.no_grad():
            load(state)
        for main, step in steps.items():
            inner.optimizer.state[main]["step"] = step

    inner.load_parameter_state_from_fully_reshardable = load_but_steps


def load_rank(args, folder):
    common = dist_checkpointing.load_common_state_dict(str(folder))
    metadata = dist_checkpointing.load_content_metadata(preloaded_state_dict=common)
    metadata["dp_cp_group"] = parallel_state.get_data_parallel_group(with_context_parallel=True)
    chunks, all_pieces, optimizer = megatron.build_rank(args)
    if args.use_distributed_optimizer:
        for inner in optimizer.chained_optimizers:
            let_pytorch_count(inner)
    names = ["model"] if len(chunks) == 1 else [f"model{i}" for i in range(len(chunks))]
    sharded = {name: bare(args, chunk).sharded_state_dict(metadata=metadata) for name, chunk in zip(names, chunks)}
    sharded["optimizer"] = optimizer.sharded_state_dict(dict(sharded), is_loading=True, metadata=metadata)
    state = dist_checkpointing.load(sharded, str(folder), strict="raise_all")
    for name, chunk in zip(names, chunks):
        bare(args, chunk).load_state_dict(state[name], strict=True)
    optimizer.load_state_dict(state["optimizer"])
    tree_test.check_all(args, all_pieces, optimizer)
    assert state["opt_param_scheduler"]["num_steps"] == 28
    assert state["iteration"] == megatron.ITERATION


def load_with_torch(folder, args):
    """All tensors, by PyTorch alone; the weights of dense layers, which are stacked, are compared with what belongs there."""
    entries = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {key: torch.full(entry.size, float("nan"), dtype=entry.properties.dtype) for key, entry in entries.items()
             if hasattr(entry, "chunks")}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    for key, tensor in state.items():
        assert not tensor.isnan().any(), key
        if key.startswith("decoder.layers.") and not args.num_experts:
            for layer, part in enumerate(tensor):
                name = key.replace("decoder.layers.", f"decoder.layers.{layer}.")
                role = "param" if tensor.dtype == torch.bfloat16 else "master"
                index = torch.arange(part.numel()).reshape(part.shape).numpy()
                tree_test.check(name, part, megatron.values(role, name, index))


def main():
    for tree, (tp, pp, per_chunk), (load_tp, load_pp, load_vpp, load_dp), distributed, *experts in CASES:
        with tempfile.TemporaryDirectory() as work:
            flags = ["--target-tensor-parallel-size", tp, "--target-pipeline-parallel-size", pp, "--target-norm-naming", "local"]
            flags += ["--num-layers-per-virtual-pipeline-stage", per_chunk] if per_chunk else []
            flags += ["--use-distributed-optimizer"] if distributed else []
            if experts:
                (ep, etp), (load_ep, load_etp) = experts
                flags += ["--target-expert-parallel-size", ep, "--expert-tensor-parallel-size", etp]
            made = pathlib.Path(peers.run("msckpt", "convert", "--load-dir", TREES / tree, "--save-dir", os.path.join(work, "dist"),
                                          "--save-model-type", "dist", *flags))
            args = dist_checkpointing.load_common_state_dict(str(made))["args"]
            assert (args.tensor_model_parallel_size, args.pipeline_model_parallel_size) == (tp, pp)
            args.tensor_model_parallel_size, args.pipeline_model_parallel_size = load_tp, load_pp
            args.virtual_pipeline_model_parallel_size, args.data_parallel_size = load_vpp, load_dp
            if experts:
                args.expert_model_parallel_size, args.expert_tensor_parallel_size = load_ep, load_etp
            args.decoder_first_pipeline_num_layers = None
            multiple = args.make_vocab_size_divisible_by * load_tp
            args.padded_vocab_size = -(-args.vocab_size // multiple) * multiple
            megatron.run_ranks(args, lambda: load_rank(args, made), f"{tree} at TP {load_tp} PP {load_pp}")
            load_with_torch(made, args)
            print(f"{tree} of TP {tp} PP {pp} at TP {load_tp} PP {load_pp} DP {load_dp}{' distributed' if distributed else ''}"
                  f"{f', EP {ep} ETP {etp} at EP {load_ep} ETP {load_etp}' if experts else ''}: "
                  "megatron-core finds all of it, and so does PyTorch")


if __name__ == "__main__":
    main()
