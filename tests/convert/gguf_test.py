#!/usr/bin/env python3
"""ggml's own gguf package reads the GGUF files that msckpt convert writes: every tensor of every family under the name in its table, with the
exact value, q8_0 with the bytes of its own quantization; and the tokenizer (MS_PEERS_PYTHON; skipped without).
"""
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../bench/peers"))
import peers  # noqa: E402

peers.need("gguf", "numpy", "safetensors", "tokenizers", "torch")
import gguf  # noqa: E402
import numpy  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import tokenizers  # noqa: E402
from gguf import GGMLQuantizationType as Type  # noqa: E402

DATA = pathlib.Path(HERE).parent / "data"
FAMILIES = {"llama": "LLAMA", "llama_biased": "LLAMA", "llama3": "LLAMA", "mistral": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3", "gemma2": "GEMMA2", "phi3": "PHI3",
            "glm4": "GLM4", "gpt2": "GPT2", "mixtral": "LLAMA", "qwen2_moe": "QWEN2MOE", "qwen3_moe": "QWEN3MOE"}
# transformers' names of single experts, and gguf's name of all experts of a layer.
EXPERT = re.compile(r"\.experts\.(\d+)\.")
TYPES = {"fp32": Type.F32, "fp16": Type.F16, "bf16": Type.BF16, "q8_0": Type.Q8_0}
TEXT = ["the quick brown fox jumps over the lazy dog"] * 3 + ["a dog and a fox"]


def model_of(family, work):
    """The tiny model, with a width that q8_0 divides in some matrices, and for Gemma a scale that llama.cpp has."""
    folder = work / family
    if "moe" in family or family == "mixtral":
        return folder, make_experts(family, folder)
    shutil.copytree(DATA / f"hf_{family}_tiny", folder)
    os.chmod(folder, 0o755)
    config = json.loads((folder / "config.json").read_text())
    if family == "gemma2":
        config["query_pre_attn_scalar"] = config["head_dim"]
        os.chmod(folder / "config.json", 0o644)
        (folder / "config.json").write_text(json.dumps(config))
    return folder, config


def make_experts(family, folder):
    """Makes models wide enough for blocks of q8_0, with experts in every layer, since llama.cpp supports no others."""
    import transformers
    config = transformers.AutoConfig.from_pretrained(DATA / f"hf_{family}_tiny")
    config.hidden_size, config.mlp_only_layers = 32, []
    for size in {"intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size"} & set(config.to_dict()):
        setattr(config, size, 64)
    torch.manual_seed(1)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return json.loads((folder / "config.json").read_text())


def stacked(tensors):
    """The tensors with all experts of a layer in one, under a name in gguf's table."""
    experts = {}
    for name in [name for name in tensors if EXPERT.search(name)]:
        experts.setdefault(EXPERT.sub(".experts.", name), {})[int(EXPERT.search(name)[1])] = tensors.pop(name)
    return tensors | {name: torch.stack([of[index] for index in sorted(of)]) for name, of in experts.items()}


def expected(family, config, name, tensor, gguf_name, wanted):
    value = tensor.float().numpy()
    if family == "gpt2" and value.ndim == 2 and not name.endswith(("wte.weight", "wpe.weight")):
        value = value.T
    if family == "gemma2" and name.endswith("norm.weight"):
        value = value + numpy.float32(1)
    if FAMILIES[family] == "LLAMA" and (".attn_q." in gguf_name or ".attn_k." in gguf_name):
        heads = config["num_attention_heads"] if ".attn_q." in gguf_name else config["num_key_value_heads"]
        value = value.reshape(heads, 2, value.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(value.shape)
    if value.ndim == 2 and value.shape[0] == 1:
        value = value[0]
    if value.ndim == 1 or gguf_name.startswith("position_embd") or "ffn_gate_inp." in gguf_name:
        wanted = Type.F32
    elif wanted == Type.Q8_0 and value.shape[-1] % 32 != 0:
        wanted = Type.F16
    return wanted, gguf.quants.quantize(numpy.ascontiguousarray(value), wanted)


def check_family(family, dtype, work):
    folder, config = model_of(family, work)
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    made = peers.run("msckpt", "convert", "--load-dir", folder, "--save-dir", out, "--save-model-type", "gguf", "--dtype", dtype)
    reader = gguf.GGUFReader(made)
    arch = getattr(gguf.MODEL_ARCH, FAMILIES[family])
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    names = gguf.get_tensor_name_map(arch, layers)
    seen = {tensor.name: tensor for tensor in reader.tensors}
    for name, tensor in stacked(safetensors.torch.load_file(folder / "model.safetensors")).items():
        gguf_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        wanted, value = expected(family, config, name, tensor, gguf_name, TYPES[dtype])
        found = seen.pop(gguf_name)
        assert found.tensor_type == wanted, f"{family}: {gguf_name} is {found.tensor_type.name}"
        assert numpy.array_equal(found.data.view(numpy.uint8).reshape(-1), value.view(numpy.uint8).reshape(-1)), f"{family}: {gguf_name}"
    factors = seen.pop("rope_freqs.weight", None)
    assert (factors is not None) == (family == "llama3") and not seen, f"{family}: {list(seen)}"
    check_values(reader, gguf.MODEL_ARCH_NAMES[arch], config)
    shutil.rmtree(folder)


def check_values(reader, arch, config):
    def value(key):
        return reader.get_field(key).contents()
    assert value("general.architecture") == arch
    pairs = {"block_count": ("num_hidden_layers", "n_layer"), "embedding_length": ("hidden_size", "n_embd"),
             "context_length": ("max_position_embeddings", "n_positions"), "attention.head_count": ("num_attention_heads", "n_head")}
    if arch != "gpt2":
        pairs["attention.head_count_kv"] = ("num_key_value_heads",)
    if arch in ("qwen2moe", "qwen3moe"):
        pairs["expert_feed_forward_length"] = ("moe_intermediate_size",)
    elif arch != "gpt2":
        pairs["feed_forward_length"] = ("intermediate_size",)
    if arch == "qwen2moe":
        pairs["expert_shared_feed_forward_length"] = ("shared_expert_intermediate_size",)
    if "num_experts_per_tok" in config:
        pairs |= {"expert_count": ("num_experts", "num_local_experts"), "expert_used_count": ("num_experts_per_tok",)}
    for key, names in pairs.items():
        assert value(f"{arch}.{key}") == next(config[name] for name in names if name in config), key
    if arch == "gemma2":
        assert value("gemma2.attn_logit_softcapping") == config["attn_logit_softcapping"]
        assert value("gemma2.attention.sliding_window") == config["sliding_window"]


def check_rope_factors(work):
    """Compares llama3's factors with transformers' own frequencies."""
    import transformers
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    config = transformers.AutoConfig.from_pretrained(DATA / "hf_llama3_tiny")
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    exponents = numpy.arange(0, config.head_dim, 2) / config.head_dim
    plain = 1.0 / config.rope_parameters["rope_theta"] ** exponents
    made = peers.run("msckpt", "convert", "--load-dir", DATA / "hf_llama3_tiny", "--save-dir", work / "rope", "--save-model-type", "gguf")
    factors = next(t for t in gguf.GGUFReader(made).tensors if t.name == "rope_freqs.weight").data
    assert numpy.allclose(plain / scaled.numpy(), factors, rtol=1e-6), factors


def check_tokenizer(work):
    folder, _ = model_of("qwen2", work)
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(set("".join(TEXT).replace(" ", "Ġ")))
    made.train_from_iterator(TEXT, tokenizers.trainers.BpeTrainer(vocab_size=45, initial_alphabet=alphabet, special_tokens=["<end>"]))
    made.add_tokens(["user"])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", "add_bos_token": False, "chat_template": "{{ x }}"}))
    out = peers.run("msckpt", "convert", "--load-dir", folder, "--save-dir", work / "tokens", "--save-model-type", "gguf")
    reader = gguf.GGUFReader(out)
    saved = json.loads((folder / "tokenizer.json").read_text())
    contents = {key: reader.get_field(f"tokenizer.ggml.{key}").contents() for key in
                ("model", "pre", "tokens", "merges", "token_type", "eos_token_id", "add_bos_token")}
    size = made.get_vocab_size()
    assert contents["model"] == "gpt2" and contents["pre"] == "gpt-2"
    assert contents["tokens"][:size] == [made.id_to_token(i) for i in range(size)] and contents["tokens"][66] == "[PAD66]"
    assert contents["merges"] == [" ".join(merge) for merge in saved["model"]["merges"]]
    kinds = contents["token_type"]
    assert kinds[made.token_to_id("<end>")] == 3 and kinds[made.token_to_id("user")] == 4 and kinds[66] == 5 and kinds[1] == 1
    assert contents["eos_token_id"] == made.token_to_id("<end>") and contents["add_bos_token"] is False
    assert reader.get_field("tokenizer.chat_template").contents() == "{{ x }}"


def main():
    with tempfile.TemporaryDirectory() as work:
        for family in FAMILIES:
            for dtype in TYPES:
                check_family(family, dtype, pathlib.Path(work))
            print(f"{family}: every tensor as f32, f16, bf16 and q8_0")
        check_rope_factors(pathlib.Path(work))
        check_tokenizer(pathlib.Path(work))
        print("rope factors and tokenizer")


if __name__ == "__main__":
    main()
