#!/usr/bin/env python3
"""Runs every command line in the first block of convert/README.md, on small checkpoints under the names that it uses."""
import json
import pathlib
import pickle
import re
import shlex
import shutil
import struct
import sys
import types
import zipfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "cli"))
import training  # noqa: E402

DATA = TESTS / "data"
README = TESTS.parent / "convert/README.md"


def inputs(line):
    """The checkpoints that the names of a line stand for. The line's comment decides between formats that share a name."""
    names = {
        "Llama-3.2-1B": DATA / "hf_llama3_tiny",
        "Qwen2-0.5B": DATA / "hf_qwen2_tiny",
        "Qwen3-30B-A3B": DATA / "hf_qwen3_moe_tiny",
        "megatron/checkpoints": DATA / ("megatron_dist" if "# dist ->" in line else "megatron/swiglu_tp2_pp2_distributed"),
    }
    if "# dcp ->" in line:
        names.update({"fsdp/step-1000": DATA / "dcp_fsdp", "Qwen2-0.5B": DATA / "dcp_fsdp/expected/param"})
    if "model_world_size" in line:
        names.update({"ranks": DATA / "fsdp_ranks/qwen2_2", "Qwen2-0.5B": DATA / "fsdp_ranks/qwen2_2/huggingface"})
    if "# ds " in line:
        names.update({"deepspeed": DATA / "deepspeed/zero1", "Qwen2-0.5B": DATA / "deepspeed/expected/zero1/param"})
    return names


def safetensors(path, tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make_adapter(folder):
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["o_proj"]}))
    config = json.loads((DATA / "hf_llama3_tiny/config.json").read_text())
    wide, hidden = config["num_attention_heads"] * config["head_dim"], config["hidden_size"]
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        module = f"base_model.model.model.layers.{layer}.self_attn.o_proj"
        tensors[module + ".lora_A.weight"] = ([2, wide], struct.pack(f"<{2 * wide}f", *[0.01] * (2 * wide)))
        tensors[module + ".lora_B.weight"] = ([hidden, 2], struct.pack(f"<{2 * hidden}f", *[0.02] * (2 * hidden)))
    safetensors(folder / "adapter_model.safetensors", tensors)


def make_meta(folder):
    """A Llama of one layer as Meta's file has it, without PyTorch: its pickle names functions, and look-alikes stand in for them."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    sys.modules.update({"torch": torch, "torch._utils": utils})
    torch.FloatStorage = type("FloatStorage", (), {"__module__": "torch"})

    def _rebuild_tensor_v2(*_):
        raise AssertionError

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    storages = []

    class Storage:
        def __init__(self, elements):
            self.id = ("storage", torch.FloatStorage, str(len(storages)), "cpu", elements)
            storages.append(struct.pack(f"<{elements}f", *[0.5 + len(storages)] * elements))

    class Tensor:
        def __init__(self, *shape):
            self.shape, elements = shape, 1
            for extent in shape:
                elements *= extent
            self.storage = Storage(elements)

        def __reduce__(self):
            stride = tuple(self.shape[1:]) + (1,)
            return _rebuild_tensor_v2, (self.storage, 0, self.shape, stride, False, {})

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return obj.id if isinstance(obj, Storage) else None

    hidden, inner, words = 16, 32, 24
    state = {"tok_embeddings.weight": Tensor(words, hidden), "norm.weight": Tensor(hidden), "output.weight": Tensor(words, hidden)}
    for name in ("attention.wq", "attention.wk", "attention.wv", "attention.wo"):
        state[f"layers.0.{name}.weight"] = Tensor(hidden, hidden)
    state.update({"layers.0.feed_forward.w1.weight": Tensor(inner, hidden), "layers.0.feed_forward.w3.weight": Tensor(inner, hidden),
                  "layers.0.feed_forward.w2.weight": Tensor(hidden, inner), "layers.0.attention_norm.weight": Tensor(hidden),
                  "layers.0.ffn_norm.weight": Tensor(hidden)})
    folder.mkdir()
    with zipfile.ZipFile(folder / "consolidated.00.pth", "w") as archive:
        with archive.open("consolidated/data.pkl", "w") as file:
            Pickler(file, 2).dump(state)
        for i, storage in enumerate(storages):
            archive.writestr(f"consolidated/data/{i}", storage)
        archive.writestr("consolidated/version", "3\n")
    (folder / "params.json").write_text(json.dumps({"dim": hidden, "n_layers": 1, "n_heads": 4, "norm_eps": 1e-5, "vocab_size": words}))


def main():
    block = README.read_text().split("```")[1]
    lines = [line for line in block.splitlines() if line.startswith("msckpt ")]
    with training.workplace(needs_mpirun=False) as place:
        place.expect(len(lines) >= 10, f"{README} begins with {len(lines)} command lines")
        for line in lines:
            folder = pathlib.Path(place.path("line"))
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            command = shlex.split(line, comments=True)
            made = command[command.index("--save-dir") + 1] if "--save-dir" in command else None
            for name, fixture in inputs(line).items():
                if name in command:
                    (folder / name).parent.mkdir(exist_ok=True)
                    (folder / name).symlink_to(fixture)
            if "adapter" in command:
                make_adapter(folder / "adapter")
            if "Meta-Llama-3-8B" in command:
                make_meta(folder / "Meta-Llama-3-8B")

            def run(*words):
                return place.tool(*words, cwd=folder)

            if "ckpt" in command and made != "ckpt":  # made by an earlier line; from a run if the line needs Adam's moments
                source = DATA / ("hf_llama3_tiny" if "hf" in command or "--hf-cfg-dir" in command else "megatron/tied_pp2_distributed")
                run("msckpt", "convert", "--load-dir", str(source), "--save-dir", "ckpt")
            if command[1] == "verify":
                run("msckpt", "convert", "--load-dir", "Llama-3.2-1B", "--save-dir", "mg", "--save-model-type", "mg")
            ran = run(*command)
            place.expect(ran.exit == 0, line, ran)
            place.expect(made is None or any(folder.glob(made + "/*")), f"{line}: made nothing", ran)


if __name__ == "__main__":
    main()
