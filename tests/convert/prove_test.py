#!/usr/bin/env python3
"""msckpt verify --against --prove names what genuine torch code did wrong in a Megatron tree and a DCP checkpoint
(MS_PEERS_PYTHON; skipped without): a tensor dropped, a tied head from the wrong side, an expert that was never written, a tensor of
another run; and what torch wrote anew without a fault raises no alarm."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = os.path.join(HERE, "../../bench/peers")  # instead of this folder, whose torch/ would pass for the package
import peers  # noqa: E402

peers.need("torch")
import torch  # noqa: E402
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp  # noqa: E402

DATA = pathlib.Path(HERE).parent / "data"
BIN = pathlib.Path(os.environ["MS_BIN"])
failures = []


def msckpt(*words):
    ran = subprocess.run([BIN / "msckpt", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    return ran.returncode, ran.stderr


def convert(source, target, *flags):
    code, said = msckpt("convert", "--load-dir", source, "--save-dir", target, "--prove", *flags)
    assert code == 0, said


def expect(what, target, source, code, *words):
    seen, said = msckpt("verify", target, "--against", source, "--prove")
    errors = "\n".join(line for line in said.splitlines() if line.startswith("E "))
    if seen == code and all(word in errors for word in words) and bool(errors) == (code != 0):
        return
    failures.append(what)
    print(f"FAILED: {what}: exit {seen}, wanted {code} and {words}\n{said}")


def edited_tree(tree, copy, rank, change):
    """The tree with the file of a rank loaded, changed and saved by torch."""
    shutil.copytree(tree, copy)
    path = copy / "release" / rank / "model_optim_rng.pt"
    state = torch.load(path, weights_only=False)
    change(state["model"])
    torch.save(state, path)
    return copy


def megatron(work):
    tied, experts = DATA / "hf_llama_tiny_sharded", DATA / "hf_qwen3_moe_tiny"
    convert(tied, work / "tied", "--to", "mg", "--pp", "2")
    expect("saved anew", edited_tree(work / "tied", work / "anew", "mp_rank_00_001", lambda model: None), tied, 0)

    def drop(model):
        del model["decoder.layers.0.mlp.linear_fc2.weight"]
    expect("dropped", edited_tree(work / "tied", work / "dropped", "mp_rank_00_000", drop), tied, 3, "refused", "linear_fc2.weight")

    def wrong_side(model):
        name = next(name for name in model if name.startswith(("output_layer", "shared_embedding", "word_embeddings", "embedding")))
        model[name] = model[name].flip(0).contiguous()
    expect("tied head", edited_tree(work / "tied", work / "head", "mp_rank_00_001", wrong_side), tied, 3, "refused", "is not bit for bit")

    convert(experts, work / "experts", "--to", "mg", "--tp", "2", "--ep", "2")

    def never_written(model):
        name = next(name for name in model if "local_experts.1.linear_fc1.weight" in name)
        model[name] = torch.zeros_like(model[name])
    expect("uninitialised", edited_tree(work / "experts", work / "zero", "mp_rank_01_001", never_written), experts, 3,
           "uninitialised: all zero", "local_experts.3.linear_fc1.weight")


def fsdp(work):
    source, config = work / "fsdp", DATA / "dcp_fsdp/expected/param/config.json"
    shutil.copytree(DATA / "dcp_fsdp", source)
    shutil.copy(config, source)
    dcp_to_torch_save(source, work / "state.pt")

    def written(name, change):
        state = torch.load(work / "state.pt", weights_only=False)
        change(state)
        torch.save(state, work / f"{name}.pt")
        torch_save_to_dcp(work / f"{name}.pt", work / name)
        shutil.copy(config, work / name)
        return work / name

    def weights(state):
        return state["model"] if "model" in state else state

    def moments(state):
        return state["optim"]["state"] if "optim" in state else state["optimizer"]["state"]

    def name_of(state, ending):
        return next(name for name in weights(state) if name.endswith(ending))
    expect("another sharding", written("whole", lambda state: None), source, 0)

    def drop(state):
        del weights(state)[name_of(state, "layers.0.mlp.down_proj.weight")]
    expect("dropped from DCP", written("dcp_dropped", drop), source, 3, "refused", "layers.0.mlp.down_proj.weight is missing")

    def swap(state):
        held = weights(state)
        a, b = name_of(state, "layers.0.mlp.gate_proj.weight"), name_of(state, "layers.0.mlp.up_proj.weight")
        held[a], held[b] = held[b], held[a]
    expect("gate and up in DCP", written("dcp_swapped", swap), source, 3, "swapped: gate and up", "layers.0.mlp.linear_fc1.weight")

    def stale(state):
        of = moments(state)
        name = next(name for name in of if name.endswith("layers.0.mlp.down_proj.weight"))
        of[name]["exp_avg"] = of[name]["exp_avg"] * 0.9 + 1e-4
    expect("stale moments in DCP", written("dcp_stale", stale), source, 3, "stale", "layers.0.mlp.linear_fc2.weight (exp_avg)")


def main():
    with tempfile.TemporaryDirectory() as folder:
        megatron(pathlib.Path(folder))
        fsdp(pathlib.Path(folder))
    print(f"prove_test.py: {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
