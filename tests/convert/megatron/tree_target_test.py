#!/usr/bin/env python3
"""megatron-core's own loading code, strict, reads the trees that msckpt convert writes, model and optimizer, and finds every
element in its place (MS_PEERS_PYTHON; skipped without).

The sources are the trees of tests/data/megatron, whose values are functions of name and index. megatron-core builds models and
optimizers from the args in the written files, in processes under gloo on the CPU (make_megatron_tree.py).
"""
import argparse
import os
import pathlib
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../../bench/peers"), os.path.join(HERE, "../../data")]
import peers  # noqa: E402

peers.need("torch", "megatron.core")
import torch  # noqa: E402
import make_megatron_tree as megatron  # noqa: E402

TREES = pathlib.Path(HERE).parents[1] / "data" / "megatron"
# Tree, TP, PP, layers per virtual stage, data-parallel size of the run that loads, distributed optimizer; for experts
# EP, ETP and whether they are grouped.
CASES = [
    ("swiglu_tp2_pp2_distributed", 1, 3, None, 1, False),
    ("swiglu_tp2_pp2_distributed", 2, 1, None, 2, True),
    ("tied_pp2_distributed", 2, 2, None, 1, True),
    ("tied_pp2_distributed", 1, 2, None, 1, False),
    ("gelu_vpp2_fp32", 1, 2, 1, 1, False),
    ("gelu_vpp2_fp32", 2, 1, None, 2, True),
    ("qk_norm_tp2_bf16", 1, 1, None, 1, False),
    ("moe_tp2_ep2", 2, 2, None, 2, False, (2, 2, False)),
    ("moe_tp2_ep2", 1, 1, None, 4, True, (2, 1, False)),
    ("moe_ep2_distributed", 2, 1, None, 2, True, (2, 2, False)),
    ("moe_latent_tp2_ep2_etp1", 2, 1, None, 2, True, (4, 1, False)),
    ("moe_latent_tp2_ep2_etp1", 1, 2, None, 2, False, (2, 1, False)),
    ("moe_grouped_tp2_ep2_distributed", 1, 1, None, 2, False, (2, 1, True)),
    ("moe_latent_tp2_ep2_etp1", 2, 1, None, 2, True, (2, 2, True)),
]
STEPS = 3


def wanted(args, pieces, name, role):
    """What belongs there; zeros in vocabulary padding."""
    values = pieces.values(name, role)
    for key, index in pieces.of[name]:
        if key in ("embedding.word_embeddings.weight", "output_layer.weight"):
            values[torch.from_numpy(index >= args.vocab_size * args.hidden_size)] = 0
    return values


def check(what, seen, values):
    assert torch.equal(seen.float().reshape(values.shape), values), f"{what}: other values"


def optimizer_of(optimizer, parameter):
    """The chained optimizer that has the parameter, or its part on this data-parallel rank; None if none has."""
    for inner in optimizer.chained_optimizers:
        if hasattr(inner, "model_param_group_index_map"):
            if parameter in inner.model_param_group_index_map:
                return inner
        elif any(main is getattr(parameter, "main_param", parameter) for group in inner.optimizer.param_groups
                 for main in group["params"]):
            return inner
    return None


def check_all(args, all_pieces, optimizer):
    for pieces in all_pieces:
        for name, parameter in pieces.parameters.items():
            check(name, parameter, wanted(args, pieces, name, "param" if args.bf16 else "master"))
            inner = optimizer_of(optimizer, parameter)
            assert inner or args.use_distributed_optimizer, f"{name}: in no optimizer"
            if inner:
                check_state(args, inner, pieces, name, parameter)
        for name, buffer in pieces.buffers.items():
            check(name, buffer, pieces.values(name, "buffer"))
    for inner in optimizer.chained_optimizers:
        for group in inner.optimizer.param_groups:
            assert group["betas"] == (0.9, 0.999) and group["eps"] == 1e-8, group
            assert group["max_lr"] == 1e-3 and group["min_lr"] == 1e-4, group


def load_rank(args, folder):
    chunks, all_pieces, optimizer = megatron.build_rank(args)
    place = folder / megatron.rank_folder(args)
    torch.serialization.add_safe_globals([argparse.Namespace])
    state = torch.load(place / "model_optim_rng.pt", weights_only=True)
    for i, chunk in enumerate(chunks):
        chunk.load_state_dict(state["model" if len(chunks) == 1 else f"model{i}"], strict=True)
    optimizer.load_state_dict(state["optimizer"])
    if args.use_distributed_optimizer:
        load_parameter_state(optimizer, place / "distrib_optim.pt")
    check_all(args, all_pieces, optimizer)
    assert state["opt_param_scheduler"]["num_steps"] == args.consumed_train_samples == 28
    assert state["iteration"] == megatron.ITERATION


def load_parameter_state(optimizer, path):
    # Transformer Engine's Adam, which is expected, keeps the step in the groups; PyTorch's with the moments.
    steps = [{main: held.pop("step") for main, held in inner.optimizer.state.items()}
             for inner in optimizer.chained_optimizers]
    load = torch.load
    torch.load = lambda path: load(path, weights_only=True)
    with torch.no_grad():
        optimizer.load_parameter_state(path)
    torch.load = load
    for inner, of_inner in zip(optimizer.chained_optimizers, steps):
        for main, step in of_inner.items():
            inner.optimizer.state[main]["step"] = step


def check_state(args, inner, pieces, name, parameter):
    if args.use_distributed_optimizer:
        part = inner._get_model_param_range_map(parameter)["param"]
        tensors = inner._get_main_param_and_optimizer_states(parameter)
        for key, role in (("param", "master"), ("exp_avg", "exp_avg"), ("exp_avg_sq", "exp_avg_sq")):
            check(f"{key} of {name}", tensors[key], wanted(args, pieces, name, role).flatten()[part.start:part.end])
        assert tensors["step"].item() == STEPS
        return
    main = getattr(parameter, "main_param", parameter)
    check(f"master of {name}", main, wanted(args, pieces, name, "master"))
    state = inner.optimizer.state[main]
    for role in ("exp_avg", "exp_avg_sq"):
        check(f"{role} of {name}", state[role], wanted(args, pieces, name, role))
    assert state["step"].item() == STEPS
    others = [other["step"].data_ptr() for other in inner.optimizer.state.values()]
    assert len(set(others)) == len(others), "parameters that share their step"


def main():
    for tree, tp, pp, per_chunk, dp, distributed, *more in CASES:
        with tempfile.TemporaryDirectory() as work:
            root = os.path.join(work, "mg")
            flags = ["--target-tensor-parallel-size", tp, "--target-pipeline-parallel-size", pp]
            flags += ["--num-layers-per-virtual-pipeline-stage", per_chunk] if per_chunk else []
            flags += ["--use-distributed-optimizer"] if distributed else []
            said = ""
            if more:
                ep, etp, grouped = more[0]
                flags += ["--target-expert-parallel-size", ep, "--expert-tensor-parallel-size", etp]
                flags += ["--moe-grouped-gemm"] if grouped else []
                said = f" EP {ep} ETP {etp}{' grouped' if grouped else ''}"
            made = pathlib.Path(peers.run("msckpt", "convert", "--load-dir", TREES / tree, "--save-dir", root,
                                          "--save-model-type", "mg", *flags))
            first = sorted(made.glob("mp_rank_00*"))[0]
            args = torch.load(first / "model_optim_rng.pt", weights_only=False)["args"]
            assert (args.tensor_model_parallel_size, args.pipeline_model_parallel_size) == (tp, pp)
            args.data_parallel_size = dp
            args.decoder_first_pipeline_num_layers = None
            megatron.run_ranks(args, lambda: load_rank(args, made), f"{tree} at TP {tp} PP {pp}")
            print(f"{tree} at TP {tp} PP {pp}{' virtual' if per_chunk else ''} DP {dp}"
                  f"{said}{' distributed' if distributed else ''}: megatron-core finds all of it")


if __name__ == "__main__":
    main()
