#!/usr/bin/env python3
"""transformers -> msckpt -> transformers: random models go in, through several layouts, and come back byte for byte.

  hf_roundtrip.py [--keep FOLDER]

For each family, tied and untied, fp32 and bf16, in one file and in shards: save_pretrained, `msckpt convert` to a native
checkpoint of some layout, `msckpt convert` back, and then every file must equal the one that transformers wrote, and
from_pretrained must load the same tensors from the folder. Needs torch and transformers (exit 77 without); MS_BIN says
where msckpt is.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import peers

peers.need("torch", "transformers")

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

BASE = dict(vocab_size=997, hidden_size=48, intermediate_size=84, num_hidden_layers=4, max_position_embeddings=64)
GPT2_BASE = dict(vocab_size=997, n_embd=48, n_layer=4, n_positions=64)


def family(name, base=BASE, head="ForCausalLM"):
    return getattr(transformers, name + "Config"), getattr(transformers, name + head), base


LLAMA, MISTRAL, QWEN2, QWEN3 = family("Llama"), family("Mistral"), family("Qwen2"), family("Qwen3")
GEMMA2, PHI3, GLM, GLM4 = (family(name, dict(BASE, pad_token_id=0)) for name in ("Gemma2", "Phi3", "Glm", "Glm4"))
GPT2 = family("GPT2", GPT2_BASE, "LMHeadModel")
HEADS = dict(num_attention_heads=8, num_key_value_heads=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
# family, config, dtype, tp, pp, shard size
CASES = [
    (LLAMA, dict(num_attention_heads=4, num_key_value_heads=4), torch.float32, 1, 1, "5GB"),
    (LLAMA, dict(num_attention_heads=8, num_key_value_heads=4), torch.bfloat16, 2, 2, "5GB"),
    (LLAMA, dict(num_attention_heads=8, num_key_value_heads=4, tie_word_embeddings=True), torch.float32, 4, 1, "100KB"),
    (LLAMA, dict(num_attention_heads=6, num_key_value_heads=3, tie_word_embeddings=True), torch.bfloat16, 3, 4, "50KB"),
    (LLAMA, dict(num_attention_heads=4, num_key_value_heads=2, head_dim=20), torch.float16, 2, 1, "5GB"),
    (LLAMA, dict(HEADS, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=3.0)), torch.float32, 2, 1, "5GB"),
    (LLAMA, dict(HEADS, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=3.0),
                 max_position_embeddings=24), torch.float32, 1, 2, "5GB"),
    (LLAMA, dict(HEADS, head_dim=32, rope_parameters=LLAMA3), torch.float32, 2, 2, "5GB"),
    (LLAMA, dict(HEADS, head_dim=32, rope_parameters=YARN), torch.float32, 2, 2, "5GB"),
    (MISTRAL, dict(HEADS, sliding_window=7), torch.float32, 2, 2, "100KB"),
    (MISTRAL, dict(HEADS, sliding_window=None), torch.bfloat16, 2, 1, "5GB"),
    (QWEN2, dict(num_attention_heads=8, num_key_value_heads=2), torch.bfloat16, 2, 1, "5GB"),
    (QWEN3, dict(num_attention_heads=8, num_key_value_heads=2, head_dim=16), torch.bfloat16, 2, 2, "100KB"),
    (GEMMA2, dict(HEADS, head_dim=16, query_pre_attn_scalar=24, sliding_window=5), torch.float32, 2, 2, "100KB"),
    (GEMMA2, dict(HEADS, head_dim=8, attn_logit_softcapping=2.0, final_logit_softcapping=None), torch.bfloat16, 1, 4, "5GB"),
    (PHI3, dict(HEADS, sliding_window=9), torch.float32, 2, 2, "100KB"),
    (PHI3, dict(num_attention_heads=4, num_key_value_heads=4), torch.bfloat16, 4, 1, "5GB"),
    (GLM, dict(HEADS, head_dim=16), torch.float32, 2, 2, "100KB"),
    (GLM4, dict(HEADS, head_dim=16), torch.float32, 2, 2, "100KB"),
    (GLM4, dict(HEADS, head_dim=8, attention_bias=False), torch.bfloat16, 2, 1, "5GB"),
    (GPT2, dict(n_head=4), torch.float32, 1, 1, "5GB"),
    (GPT2, dict(n_head=6, n_inner=72, activation_function="gelu", tie_word_embeddings=False), torch.float32, 3, 4, "50KB"),
    (GPT2, dict(n_head=4), torch.bfloat16, 2, 2, "100KB"),
]


def make_model(family, options, dtype):
    model = family[1](family[0](**dict(family[2], **options)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name or ".ln_" in name
            parameter.normal_(1.0 if is_norm and family != GEMMA2 and "bias" not in name else 0.0, 0.2)
    return model.to(dtype)


def convert(*arguments):
    result = subprocess.run([peers.binary("msckpt"), "convert", *map(str, arguments)], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"msckpt convert {' '.join(map(str, arguments))}: exit {result.returncode}\n{result.stderr}")
    return result.stdout.strip()


def check(number, case, folder):
    family, options, dtype, tp, pp, shard_size = case
    torch.manual_seed(number)
    model = make_model(family, options, dtype)
    original, native, back = folder / "hf", folder / "ms", folder / "back"
    model.save_pretrained(original, max_shard_size=shard_size)
    made = convert("--load-dir", original, "--save-dir", native, "--target-tensor-parallel-size", tp,
                   "--target-pipeline-parallel-size", pp)
    assert pathlib.Path(made).is_dir(), f"convert printed {made!r}, which is no folder"
    assert convert("--load-dir", native, "--save-dir", back, "--max-shard-size", shard_size) == str(back)
    names = sorted(path.name for path in original.iterdir())
    assert names == sorted(path.name for path in back.iterdir()), f"other files: {sorted(back.iterdir())}"
    for name in names:
        assert (original / name).read_bytes() == (back / name).read_bytes(), f"{name} differs"
    loaded = AutoModelForCausalLM.from_pretrained(back, dtype=dtype)
    ours, theirs = loaded.state_dict(), model.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), f"{name} differs after from_pretrained"
    print(f"{family[0].__name__} {options} {dtype} TP {tp} PP {pp}: {len(names)} files equal")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=pathlib.Path, help="work here and leave the files")
    arguments = parser.parse_args()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as temporary:
        for number, case in enumerate(CASES):
            check(number, case, (arguments.keep or pathlib.Path(temporary)) / str(number))


if __name__ == "__main__":
    main()
