#!/usr/bin/env python3
"""Tiny random models of every family, and multimodal models, made by transformers, are converted to a native checkpoint at TP 2 PP 2
(EP 2), a Megatron tree and torch_dist of other layouts, and back: every file is byte-identical, and from_pretrained loads the folder with the
same tensors and logits. With a config.json that msckpt makes from torch_dist alone, it loads a model with the same loss. Then maps: the output
of families --explain reads the same model, and a map with two exchanged names changes the logits (MS_PEERS_PYTHON; skipped without).

  families_test.py [NAME ...]
"""
import json
import os
import pathlib
import subprocess
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
CUSTOM = ("granite", "olmo2", "olmoe", "gemma3", "gpt_neox", "qwen3_biased")  # Megatron has no arguments for them


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


def logits(model, tokens):
    with torch.no_grad():
        return model(input_ids=tokens).logits


def convert(source, target, kind, *flags):
    peers.run("msckpt", "convert", "--load-dir", source, "--save-dir", target, "--save-model-type", kind, *flags)
    return target


def load(name, path):
    auto = transformers.AutoModelForImageTextToText if name in make_hf_tiny.WRAPPERS else transformers.AutoModelForCausalLM
    return auto.from_pretrained(path, dtype=torch.float32)


def expect_refused(source, target, kind, *flags):
    result = subprocess.run([peers.binary("msckpt"), "convert", "--load-dir", source, "--save-dir", target, "--save-model-type", kind, *map(
        str, flags)], capture_output=True, text=True)
    assert result.returncode == 2 and "--allow-custom-model" in result.stderr, f"{source} to {kind}: {result.returncode} {result.stderr}"


def check_bin(name, folder, expected, tokens):
    """Checks the folder of .bin files that msckpt makes from our checkpoint: what torch.load reads, and what transformers computes with it."""
    stored = torch.load(folder / "pytorch_model.bin", weights_only=True)
    assert stored and all(torch.is_tensor(value) for value in stored.values()), f"{name}: pytorch_model.bin"
    loaded = load(name, folder)
    state, wanted = loaded.state_dict(), expected.state_dict()
    assert state.keys() == wanted.keys() and all(torch.equal(state[key], wanted[key]) for key in wanted), f"{name}: hf-bin has other values"
    assert torch.equal(logits(loaded, tokens), logits(expected, tokens)), f"{name}: hf-bin has other logits"


def check(name, folder):
    make_hf_tiny.make(folder, name)
    original = folder / name
    config = json.loads((original / "config.json").read_text())
    text = config.get("text_config", config)
    layers = text.get("num_hidden_layers") or text["n_layer"]
    has_experts = any(config.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts"))
    custom = ["--allow-custom-model"] if any(family in name for family in CUSTOM) else []
    through = [
        ("ms", layout(2, 2, layers, experts(2) if has_experts else ())),
        ("mg", ["--target-norm-naming", "te", *custom, *layout(2, 2, layers, experts(4, 1, "--moe-grouped-gemm") if has_experts else ())]),
        ("dist", [*custom, *layout(1, 2, layers, experts(2, 2) if has_experts else ())]),
        ("hf", ["--hf-cfg-dir", original, *(["--max-shard-size", "8KB"] if name.endswith("_sharded") else [])])]
    at = original
    for step, (kind, flags) in enumerate(through):
        if kind == "hf":
            convert(at, folder / "bare", "hf")
        if custom and kind in ("mg", "dist"):
            expect_refused(at, folder / "refused", kind)
        at = convert(at, folder / f"{step}_{kind}", kind, *flags)
    for path in original.iterdir():
        if path.name not in NOT_OF_THE_MODEL:
            assert (at / path.name).read_bytes() == path.read_bytes(), f"{name}: {path.name} differs"
    reference = json.loads((original / "reference.json").read_text())
    tokens = torch.tensor(reference["tokens"])
    if "internlm2" not in name:  # transformers does not have it; the bare folder is a Llama's
        expected, loaded = load(name, original), load(name, at)
        expected_tensors, tensors = expected.state_dict(), loaded.state_dict()
        assert tensors.keys() == expected_tensors.keys(), f"{name}: other tensors"
        assert all(torch.equal(tensors[key], expected_tensors[key]) for key in tensors), f"{name}: other values"
        assert torch.equal(logits(loaded, tokens), logits(expected, tokens)), f"{name}: other logits"
        assert loss(loaded, tokens) == reference["loss"], f"{name}: another loss"
        check_bin(name, convert(folder / "0_ms", folder / "bin", "hf-bin"), expected, tokens)
    bare = loss(load(name, folder / "bare"), tokens)  # phi3 comes back as a mistral: other products of matrices
    assert abs(bare - reference["loss"]) <= 1e-6 * reference["loss"], f"{name}: the loss is {bare} without the original config.json"
    print(f"{name}: through ms, mg and dist, and back", flush=True)
    if name in make_hf_tiny.WRAPPERS or name.endswith("_sharded"):
        return
    check_maps(name, folder, config["model_type"], tokens, reference["loss"])


def exchanged(explained, key, part, other):
    """The map with the names of two parts of a parameter exchanged; None if it has no such parts."""
    wrong = json.loads(explained)
    names = wrong["tensors"].get(f"decoder.layers.{{layer}}.{key}")
    if not isinstance(names, dict) or part not in names or other not in names:
        return None
    names[part], names[other] = names[other], names[part]
    wrong.pop("order", None)
    return wrong


def packed_otherwise(explained):
    wrong = json.loads(explained)
    names = wrong["tensors"].get("decoder.layers.{layer}.self_attention.linear_qkv.weight", {})
    for packing, other in (("qkv", "qkv_grouped"), ("qkv_grouped", "qkv")):
        if packing in names:
            names[other] = names.pop(packing)
            return wrong
    return None


def check_maps(name, folder, model_type, tokens, expected):
    """Right and wrong maps: their result is written under the family's own names and computed by transformers."""
    original = folder / name
    explained = peers.run("msckpt", "families", "--explain", model_type)

    def loss_of(map_text, what):
        (folder / f"{what}.json").write_text(map_text)
        native = convert(original, folder / f"{what}_ms", "ms", "--name-map", folder / f"{what}.json")
        back = convert(native, folder / f"{what}_back", "hf")
        assert (back / "config.json").read_bytes() == (original / "config.json").read_bytes()
        # With the stored map the folder is the same, right or wrong; under the built-in names a wrong map shows.
        assert all((back / path.name).read_bytes() == path.read_bytes() for path in original.glob("*.safetensors")), f"{name}: {what}"
        tree = convert(native, folder / f"{what}_mg", "mg", "--allow-custom-model")
        return loss(load(name, convert(tree, folder / f"{what}_hf", "hf")), tokens)

    assert abs(loss_of(explained, "right") - expected) <= 1e-6 * expected, f"{name}: its explanation is another family"
    mlp = "mlp.experts.local_experts.{expert}" if "local_experts" in explained else "mlp"
    wrong = {"k_and_v": exchanged(explained, "self_attention.linear_qkv.weight", "key", "value"),
             "q_and_k": exchanged(explained, "self_attention.linear_qkv.weight", "query", "key"),
             "gate_and_up": exchanged(explained, f"{mlp}.linear_fc1.weight", "gate", "up"), "packing": packed_otherwise(explained)}
    if json.loads((original / "config.json").read_text()).get("num_key_value_heads") != make_hf_tiny.SHAPE["num_attention_heads"]:
        del wrong["q_and_k"]  # of other shapes, which msckpt refuses itself
    found = [what for what, names in wrong.items() if names is not None]
    assert found, f"{name}: no map to get wrong"
    for what in found:
        seen = loss_of(json.dumps(wrong[what]), what)
        assert abs(seen - expected) > 1e-4 * expected, f"{name}: {what} exchanged, and the loss is the same {seen}"
    print(f"{name}: explained, and found by its loss: {', '.join(found)}", flush=True)


def main():
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for name in sys.argv[1:] or [*make_hf_tiny.MODELS, *make_hf_tiny.WRAPPERS]:
        if not name.endswith("_packed"):  # it comes back as transformers writes it, expert by expert
            with tempfile.TemporaryDirectory() as folder:
                check(name, pathlib.Path(folder))


if __name__ == "__main__":
    main()
