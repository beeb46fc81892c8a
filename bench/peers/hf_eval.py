#!/usr/bin/env python3
"""transformers -> mstrain --skip-train -> transformers: the model keeps its loss, and comes back unchanged.

  hf_eval.py [--keep FOLDER]

Random models of each family, tied and untied, of each dtype, in one file and in shards. mstrain computes the loss on known
samples in fp32, from the Hugging Face folder (--eval-only) and from a checkpoint of some layout that `msckpt convert` made
from it (--skip-train); both are compared with transformers' own loss, bar 1e-5 relative. Then the way back: every file is
byte-identical, and from_pretrained loads the same tensors and loss. Needs numpy, torch and transformers (exit 77 without);
MS_BIN is the folder of our programs.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import peers

peers.need("numpy", "torch", "transformers", programs=("mstrain", "msckpt"))

import numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from hf_loss import model_loss, read_tokens  # noqa: E402

BAR = 1e-5
SEQ_LENGTH, SAMPLES, BATCH = 48, 12, 4
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


def our_loss(model, folder, flag):
    metrics = folder / f"metrics{flag}.jsonl"
    peers.run("mstrain", "--load", model, "--use-checkpoint-args", flag, "--valid-data-path", folder / "tokens",
              "--seq-length", SEQ_LENGTH, "--global-batch-size", BATCH, "--micro-batch-size", 2,
              "--eval-iters", SAMPLES // BATCH, "--metrics-path", metrics, "--peak-tflops", 1)
    return json.loads(metrics.read_text())["lm loss validation"]


def check(number, case, folder):
    family, options, dtype, tp, pp, shard_size = case
    torch.manual_seed(number)
    model = make_model(family, options, dtype)
    original, native, back = folder / "hf", folder / "ms", folder / "back"
    model.save_pretrained(original, max_shard_size=shard_size)
    # One document of exactly these samples: each is evaluated once, so their shuffled order does not matter.
    tokens = numpy.random.RandomState(number).randint(model.config.vocab_size, size=SAMPLES * SEQ_LENGTH + 1)
    peers.write_indexed_dataset(folder / "tokens", [tokens])
    rows = read_tokens(folder / "tokens.bin", SEQ_LENGTH, SAMPLES, "uint16")

    theirs = model_loss(original, rows)
    peers.run("msckpt", "convert", "--load-dir", original, "--save-dir", native, "--target-tensor-parallel-size", tp,
              "--target-pipeline-parallel-size", pp)
    errors = [abs(our_loss(path, folder, flag) - theirs) / theirs
              for path, flag in ((original, "--eval-only"), (native, "--skip-train"))]
    made = peers.run("msckpt", "convert", "--load-dir", native, "--save-dir", back, "--max-shard-size", shard_size)
    names = sorted(path.name for path in original.iterdir())
    same = names == sorted(path.name for path in back.iterdir()) and all(
        (original / name).read_bytes() == (back / name).read_bytes() for name in names)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(back, dtype=dtype).state_dict()
    expected = model.state_dict()
    same_tensors = loaded.keys() == expected.keys() and all(torch.equal(loaded[name], expected[name]) for name in expected)
    good = max(errors) <= BAR and same and same_tensors and model_loss(back, rows) == theirs and made == str(back)
    print(f"{family[0].__name__} {options} {dtype} TP {tp} PP {pp}: loss {theirs:.6f}, relative error {errors[0]:.1e} from "
          f"the folder, {errors[1]:.1e} from the checkpoint; {len(names)} files {'equal' if same else 'DIFFER'}, "
          f"tensors {'equal' if same_tensors else 'DIFFER'}{'' if good else ' | MISSES THE BAR'}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=pathlib.Path, help="work here and leave the files")
    arguments = parser.parse_args()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    good = True
    with tempfile.TemporaryDirectory() as temporary:
        for number, case in enumerate(CASES):
            folder = (arguments.keep or pathlib.Path(temporary)) / str(number)
            folder.mkdir(parents=True)
            good = check(number, case, folder) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
