#!/usr/bin/env python3
"""transformers -> mstrain --skip-train -> transformers: the same model has the same loss, and comes back unchanged.

  hf_eval.py [--keep FOLDER]

For each family of hf_roundtrip.py a random model with fp32 arithmetic: its loss on known samples as mstrain computes it
from the Hugging Face folder (--eval-only) and from the checkpoint that `msckpt convert` made of it (--skip-train),
beside transformers' own; bar 1e-5 relative. Then the way back: every file byte for byte, and from_pretrained has the
loss again. Needs numpy, torch and transformers (exit 77 without); MS_BIN says where our programs are.
"""
import argparse
import json
import pathlib
import sys
import tempfile

import peers

peers.need("numpy", "torch", "transformers")

import numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from hf_loss import model_loss, read_tokens  # noqa: E402
from hf_roundtrip import CASES, make_model  # noqa: E402

BAR = 1e-5
SEQ_LENGTH, SAMPLES, BATCH = 48, 12, 4


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
    # One document of exactly these samples: every one is evaluated once, so their shuffled order does not matter.
    tokens = numpy.random.RandomState(number).randint(model.config.vocab_size, size=SAMPLES * SEQ_LENGTH + 1)
    peers.write_indexed_dataset(folder / "tokens", [tokens])
    rows = read_tokens(folder / "tokens.bin", SEQ_LENGTH, SAMPLES, "uint16")

    theirs = model_loss(original, rows)
    peers.run("msckpt", "convert", "--load-dir", original, "--save-dir", native, "--target-tensor-parallel-size", tp,
              "--target-pipeline-parallel-size", pp)
    errors = [abs(our_loss(path, folder, flag) - theirs) / theirs
              for path, flag in ((original, "--eval-only"), (native, "--skip-train"))]
    peers.run("msckpt", "convert", "--load-dir", native, "--save-dir", back, "--max-shard-size", shard_size)
    names = sorted(path.name for path in original.iterdir())
    same = names == sorted(path.name for path in back.iterdir()) and all(
        (original / name).read_bytes() == (back / name).read_bytes() for name in names)
    good = max(errors) <= BAR and same and model_loss(back, rows) == theirs
    print(f"{family[0].__name__} {options} {dtype} TP {tp} PP {pp}: loss {theirs:.6f}, relative error {errors[0]:.1e} from "
          f"the folder, {errors[1]:.1e} from the checkpoint; {len(names)} files {'equal' if same else 'DIFFER'}"
          f"{'' if good else ' | MISSES THE BAR'}", flush=True)
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
