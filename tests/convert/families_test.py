#!/usr/bin/env python3
"""Tiny random models of every family, made by transformers, go through a native checkpoint at TP 2 PP 2 (EP 2), a Megatron tree and
torch_dist of other layouts, and back: every file byte for byte, and from_pretrained loads the folder, with the same tensors and loss; and with
a config.json that msckpt makes of torch_dist alone it loads a model of the same loss (MS_PEERS_PYTHON; skipped without).
"""
import json
import os
import pathlib
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../bench/peers"), os.path.join(HERE, "../data")]
import peers  # noqa: E402

peers.need("torch", "transformers", "safetensors")
import torch  # noqa: E402
import transformers  # noqa: E402
import make_hf_tiny  # noqa: E402

NOT_OF_THE_MODEL = ("reference.json", "generation_config.json")


def layout(tp, pp, layers, experts=()):
    flags = ["--target-tensor-parallel-size", tp, "--target-pipeline-parallel-size", pp]
    if layers % pp:
        flags += ["--num-layer-list", ",".join(str(layers // pp + (stage >= pp - layers % pp)) for stage in range(pp))]
    return flags + list(experts)


def experts(ep, etp=None, *more):
    return ["--target-expert-parallel-size", ep, *(["--expert-tensor-parallel-size", etp] if etp else []), *more]


def loss(model, tokens):
    with torch.no_grad():
        return model(input_ids=tokens, labels=tokens).loss.item()


def check(name, folder):
    make_hf_tiny.make(folder, name)
    original = folder / name
    config = json.loads((original / "config.json").read_text())
    layers = config.get("num_hidden_layers") or config["n_layer"]
    has_experts = any(config.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts"))
    through = [
        ("ms", layout(2, 2, layers, experts(2) if has_experts else ())),
        ("mg", ["--target-norm-naming", "te", *layout(2, 2, layers, experts(4, 1, "--moe-grouped-gemm") if has_experts else ())]),
        ("dist", layout(1, 2, layers, experts(2, 2) if has_experts else ())),
        ("hf", ["--hf-cfg-dir", original, *(["--max-shard-size", "8KB"] if name.endswith("_sharded") else [])])]
    at = original
    for step, (kind, flags) in enumerate(through):
        if kind == "hf":
            peers.run("msckpt", "convert", "--load-dir", at, "--save-dir", folder / "bare", "--save-model-type", "hf")
        made = folder / f"{step}_{kind}"
        peers.run("msckpt", "convert", "--load-dir", at, "--save-dir", made, "--save-model-type", kind, *flags)
        at = made
    for path in original.iterdir():
        if path.name not in NOT_OF_THE_MODEL:
            assert (at / path.name).read_bytes() == path.read_bytes(), f"{name}: {path.name} differs"
    model_of = transformers.AutoModelForCausalLM.from_pretrained
    expected, loaded = (model_of(path, dtype=torch.float32) for path in (original, at))
    expected_tensors, tensors = expected.state_dict(), loaded.state_dict()
    assert tensors.keys() == expected_tensors.keys(), f"{name}: other tensors"
    assert all(torch.equal(tensors[key], expected_tensors[key]) for key in tensors), f"{name}: other values"
    reference = json.loads((original / "reference.json").read_text())
    tokens = torch.tensor(reference["tokens"])
    assert loss(loaded, tokens) == reference["loss"], f"{name}: another loss"
    bare = loss(model_of(folder / "bare", dtype=torch.float32), tokens)  # phi3 comes back as a mistral: other products of matrices
    assert abs(bare - reference["loss"]) <= 1e-6 * reference["loss"], f"{name}: the loss is {bare} without the original config.json"
    print(f"{name}: {len(tensors)} tensors through ms, mg and dist, and back", flush=True)


def main():
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for name in make_hf_tiny.MODELS:
        if not name.endswith("_packed"):  # which comes back as transformers writes it, expert by expert
            with tempfile.TemporaryDirectory() as folder:
                check(name, pathlib.Path(folder))


if __name__ == "__main__":
    main()
