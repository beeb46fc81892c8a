#!/usr/bin/env python3
"""Models of ten classes that msckpt has no table for, made by transformers: inspect, diff, verify --against, resharding, other element
types, averages, and conversions between hf, hf-bin, single files and DCP, each compared with what torch, safetensors and transformers read
(MS_PEERS_PYTHON; skipped without). Also a PEFT adapter, a wrapped state_dict, and optimizer state in DCP.
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
import torch.distributed.checkpoint as dcp  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save  # noqa: E402
import make_unknown_models  # noqa: E402


def msckpt(*arguments):
    return peers.run("msckpt", *arguments)


def exit_code(*arguments):
    return subprocess.run([peers.binary("msckpt"), *map(str, arguments)], capture_output=True).returncode


def convert(source, target, *flags):
    made = msckpt("convert", "--load-dir", source, "--save-dir", target, *flags)
    assert made == str(target), made
    return target


def read_hf(folder, suffix="safetensors"):
    """All tensors of a folder, by its index if there is one; every file contains what the index lists, and nothing else."""
    load = load_file if suffix == "safetensors" else lambda path: torch.load(path, weights_only=True)
    stem = "model" if suffix == "safetensors" else "pytorch_model"
    index = folder / f"{stem}.{suffix}.index.json"
    if not index.exists():
        return load(folder / f"{stem}.{suffix}"), 1
    weight_map = json.loads(index.read_text())["weight_map"]
    tensors = {}
    for name in set(weight_map.values()):
        for key, value in load(folder / name).items():
            assert weight_map[key] == name, key
            tensors[key] = value
    assert tensors.keys() == weight_map.keys()
    return tensors, len(set(weight_map.values()))


def same(seen, wanted, what):
    assert seen.keys() == wanted.keys(), (what, seen.keys() ^ wanted.keys())
    for name, value in wanted.items():
        assert seen[name].dtype == value.dtype and seen[name].shape == value.shape, (what, name, seen[name].dtype, value.dtype)
        assert torch.equal(seen[name].reshape(-1).view(torch.uint8), value.reshape(-1).contiguous().view(torch.uint8)), (what, name)


def check(name, work):
    folder = work / "original"
    model = make_unknown_models.make(folder, name)
    wanted = load_file(folder / "model.safetensors")
    assert exit_code("convert", "--load-dir", folder, "--save-dir", work / "ms", "--target-tensor-parallel-size", 2,
                     "--save-model-type", "ms") == 2

    seen = json.loads(msckpt("inspect", folder, "--json"))
    shapes = {t["name"]: (t["shape"], t["dtype"]) for t in seen["tensors"]}
    types = {torch.float32: "fp32", torch.int64: "int64"}
    assert shapes == {key: (list(value.shape), types[value.dtype]) for key, value in wanted.items()}, name
    assert "of no known family" in msckpt("inspect", folder, "--tensors")

    # Other shard sizes, and back: the files of transformers.
    split = convert(folder, work / "split", "--save-model-type", "hf", "--max-shard-size", "4KB")
    tensors, files = read_hf(split)
    same(tensors, wanted, "split")
    assert files > 1
    loaded = type(model).from_pretrained(split)
    for key, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value), (name, key)
    whole = convert(split, work / "whole", "--save-model-type", "hf")
    assert (whole / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes(), name
    assert (whole / "config.json").read_bytes() == (folder / "config.json").read_bytes(), name

    # torch.save files, one and several.
    in_bin = convert(split, work / "bin", "--save-model-type", "hf-bin")
    same(torch.load(in_bin / "pytorch_model.bin", weights_only=True), wanted, "bin")
    bins = convert(folder, work / "bins", "--save-model-type", "hf-bin", "--max-shard-size", "4KB")
    tensors, files = read_hf(bins, "bin")
    same(tensors, wanted, "bins")
    assert files > 1
    for ending in ("pt", "bin", "safetensors"):
        file = convert(bins, work / f"single.{ending}", "--save-model-type", "file")
        same(load_file(file) if ending == "safetensors" else torch.load(file, weights_only=True), wanted, ending)
        assert msckpt("verify", file, "--against", folder) == str(file)

    # DCP of three ranks, as torch reads it; resharded to two; and back.
    in_dcp = convert(folder, work / "dcp", "--save-model-type", "dcp", "--target-data-parallel-size", 3)
    dcp_to_torch_save(str(in_dcp), str(work / "all.pt"))
    same(torch.load(work / "all.pt", weights_only=True)["model"], wanted, "dcp")
    state = {"model": {key: torch.zeros_like(value) for key, value in wanted.items()}}
    dcp.load(state, checkpoint_id=str(in_dcp), no_dist=True)
    same(state["model"], wanted, "dcp.load")
    two = convert(in_dcp, work / "dcp2", "--save-model-type", "dcp", "--target-data-parallel-size", 2, "--as-named")
    assert msckpt("verify", two, "--against", folder, "--as-named") == str(two)
    back = convert(two, work / "back", "--save-model-type", "hf", "--as-named")
    assert (back / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes(), name

    # Another type.
    cast = convert(folder, work / "bf16", "--save-model-type", "hf", "--dtype", "bf16")
    same(read_hf(cast)[0], {key: value.to(torch.bfloat16) if value.is_floating_point() else value for key, value in wanted.items()}, "bf16")
    config = json.loads((cast / "config.json").read_text())
    assert config.get("dtype", config.get("torch_dtype")) == "bfloat16", name

    # Renamed and picked.
    renamed = convert(folder, work / "renamed.safetensors", "--save-model-type", "file", "--rename", "^=first.",
                      "--rename", r"\.weight$=.w", "--exclude", "bias")
    names = {"first." + (key[:-len("weight")] + "w" if key.endswith(".weight") else key): value
             for key, value in wanted.items() if "bias" not in key}
    same(load_file(renamed), names, "renamed")

    # Differences and averages.
    assert exit_code("diff", folder, bins) == 0
    changed = {key: value.clone() for key, value in wanted.items()}
    key = max(changed, key=lambda k: changed[k].numel())
    changed[key].view(-1)[-1] += 1
    save_file(changed, work / "changed.safetensors")
    assert exit_code("diff", folder, work / "changed.safetensors") == 10
    assert exit_code("verify", work / "changed.safetensors", "--against", folder) == 10
    make_unknown_models.make(work / "second", name, 1)
    other = load_file(work / "second" / "model.safetensors")
    merged = work / "merged"
    msckpt("merge", folder, work / "second", "--weights", "0.75,0.25", "--save-dir", merged, "--save-model-type", "hf")
    same(read_hf(merged)[0], {k: (0.75 * v.double() + 0.25 * other[k].double()).float() if v.is_floating_point() else v
                              for k, v in wanted.items()}, "merged")
    print(f"{name}: {len(wanted)} tensors: inspect, diff, verify --against, reshard, dtype, merge, hf, hf-bin, files, dcp")


def check_wrapped(work):
    tensors = {"a.weight": torch.randn(3, 5), "b": torch.arange(4), "s": torch.tensor(2.5), "e": torch.zeros(0, 3),
               "h": torch.randn(2, 2, 2, 2, dtype=torch.float16), "f8": torch.randn(8).to(torch.float8_e4m3fn)}
    for wrapper in ("state_dict", "model", "module"):
        torch.save({wrapper: tensors, "epoch": 3, "optimizer": {"lr": 0.1}}, work / f"{wrapper}.pt")
        made = convert(work / f"{wrapper}.pt", work / f"{wrapper}.safetensors", "--save-model-type", "file")
        same(load_file(made), tensors, wrapper)
    old = {key: value for key, value in tensors.items() if key != "f8"}  # a type that files before 1.6 do not have
    torch.save(old, work / "legacy.bin", _use_new_zipfile_serialization=False)
    again = convert(work / "legacy.bin", work / "again.pt", "--save-model-type", "file")
    same(torch.load(again, weights_only=True), old, "legacy")
    again = convert(work / "model.pt", work / "model_again.pt", "--save-model-type", "file")
    same(torch.load(again, weights_only=True), tensors, "again")
    in_dcp = convert(again, work / "in_dcp", "--save-model-type", "dcp", "--target-data-parallel-size", 2)
    dcp_to_torch_save(str(in_dcp), str(work / "in_dcp.pt"))
    same(torch.load(work / "in_dcp.pt", weights_only=True)["model"], tensors, "dcp of all kinds")
    print("wrapped state_dicts, all kinds of tensors")


def check_adapter(work):
    if not peers.installed("peft"):
        return print("no peft: adapters are not checked")
    import peft
    base = transformers.OPTForCausalLM(transformers.OPTConfig(vocab_size=37, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                                              ffn_dim=24, word_embed_proj_dim=16, max_position_embeddings=32))
    adapter = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    adapter.save_pretrained(work / "adapter")
    wanted = load_file(work / "adapter" / "adapter_model.safetensors")
    made = convert(work / "adapter", work / "bf16", "--save-model-type", "hf", "--dtype", "bf16")
    same(load_file(made / "adapter_model.safetensors"), {k: v.to(torch.bfloat16) for k, v in wanted.items()}, "adapter")
    assert (made / "adapter_config.json").read_bytes() == (work / "adapter" / "adapter_config.json").read_bytes()
    peft.PeftModel.from_pretrained(transformers.OPTForCausalLM(base.config), made)
    in_bin = convert(work / "adapter", work / "bin", "--save-model-type", "hf-bin")
    same(torch.load(in_bin / "adapter_model.bin", weights_only=True), wanted, "adapter.bin")
    print(f"adapter of PEFT: {len(wanted)} tensors")


def main():
    names = sys.argv[1:] or list(make_unknown_models.MODELS)
    families = msckpt("families")
    for name in names:
        assert name not in [line.split()[0] for line in families.splitlines()], name
        with tempfile.TemporaryDirectory() as work:
            check(name, pathlib.Path(work))
    with tempfile.TemporaryDirectory() as work:
        check_wrapped(pathlib.Path(work))
    with tempfile.TemporaryDirectory() as work:
        check_adapter(pathlib.Path(work))


if __name__ == "__main__":
    main()
