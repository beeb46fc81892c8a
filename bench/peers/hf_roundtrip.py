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
LLAMA = (transformers.LlamaConfig, transformers.LlamaForCausalLM)
QWEN2 = (transformers.Qwen2Config, transformers.Qwen2ForCausalLM)
QWEN3 = (transformers.Qwen3Config, transformers.Qwen3ForCausalLM)
# family, config, dtype, tp, pp, shard size
CASES = [
    (LLAMA, dict(num_attention_heads=4, num_key_value_heads=4), torch.float32, 1, 1, "5GB"),
    (LLAMA, dict(num_attention_heads=8, num_key_value_heads=4), torch.bfloat16, 2, 2, "5GB"),
    (LLAMA, dict(num_attention_heads=8, num_key_value_heads=4, tie_word_embeddings=True), torch.float32, 4, 1, "100KB"),
    (LLAMA, dict(num_attention_heads=6, num_key_value_heads=3, tie_word_embeddings=True), torch.bfloat16, 3, 4, "50KB"),
    (LLAMA, dict(num_attention_heads=4, num_key_value_heads=2, head_dim=20), torch.float16, 2, 1, "5GB"),
    (QWEN2, dict(num_attention_heads=8, num_key_value_heads=2), torch.bfloat16, 2, 1, "5GB"),
    (QWEN3, dict(num_attention_heads=8, num_key_value_heads=2, head_dim=16), torch.bfloat16, 2, 2, "100KB"),
]


def make_model(family, options, dtype):
    model = family[1](family[0](**BASE, **options))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.2)
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
