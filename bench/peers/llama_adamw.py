#!/usr/bin/env python3
"""50 AdamW steps of a small Llama: mstrain beside transformers and torch, from the same weights on the same samples.

  llama_adamw.py [--keep FOLDER]                       every case of CASES; exit 1 if one misses the bar
  llama_adamw.py --write-golden tests/data/llama_adamw  the case `golden`, kept for tests/train/torch_golden_test.cpp

transformers makes the model; mstrain trains it from its folder, leaving the document, sample and shuffle index, from
which this script cuts the same batches; `msckpt convert` takes the trained weights back. Bars: 1e-5 relative in the loss
of every step, 1e-4 relative L2 in every tensor of the final weights. Needs numpy, torch, transformers and safetensors
(exit 77 without); MS_BIN says where our programs are.
"""
import argparse
import json
import math
import pathlib
import shutil
import sys
import tempfile

import peers

peers.need("numpy", "torch", "transformers", "safetensors")

import numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

LOSS_BAR, WEIGHT_BAR = 1e-5, 1e-4
STEPS = 50
COMMON = {"micro-batch-size": 2, "global-batch-size": 4, "seq-length": 32, "lr": 1e-3, "weight-decay": 0.1, "clip-grad": 1.0,
          "adam-beta1": 0.9, "adam-beta2": 0.95, "adam-eps": 1e-8, "lr-decay-style": "constant", "lr-warmup-iters": 0,
          "lr-warmup-init": 0.0, "min-lr": 0.0, "seed": 1234}
SMALL = {"vocab_size": 259, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2}
LARGER = {"vocab_size": 1009, "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 4,
          "num_attention_heads": 8, "num_key_value_heads": 2}
# name: model, flags beyond COMMON
CASES = {
    "golden": (SMALL, {"lr": 2e-3, "lr-decay-style": "cosine", "lr-warmup-iters": 5, "lr-warmup-init": 1e-5, "min-lr": 1e-4}),
    "constant": (LARGER, {"adam-beta2": 0.999}),
    "tied": ({**LARGER, "tie_word_embeddings": True, "rms_norm_eps": 1e-5, "rope_parameters": {
        "rope_type": "default", "rope_theta": 50000.0}}, {"clip-grad": 0.3, "lr-decay-style": "linear", "lr-warmup-iters": 3}),
    "heads": ({**LARGER, "head_dim": 12, "num_key_value_heads": 8}, {"micro-batch-size": 4, "global-batch-size": 8, "clip-grad": 100.0}),
}


def make_model(shape, folder):
    torch.manual_seed(20)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, max_position_embeddings=64))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.1)
    model.save_pretrained(folder)


def make_documents(vocab):
    """Documents of uneven length, mostly a fixed walk: there is something to learn."""
    random = numpy.random.RandomState(5)
    documents = []
    for length in random.randint(20, 200, size=20):
        document = [random.randint(vocab)]
        while len(document) < length:
            document.append(random.randint(vocab) if random.randint(8) == 0 else (document[-1] * 5 + 7) % vocab)
        documents.append(numpy.array(document))
    return documents


def train_ours(folder, flags):
    """The loss of every step and the trained weights by their Hugging Face names."""
    options = [part for name, value in flags.items() for part in (f"--{name}", value)]
    checkpoint = peers.run("mstrain", "--load", folder / "hf", "--use-checkpoint-args", "--finetune", "--train-iters", STEPS,
                           "--train-data-path", folder / "tokens", "--data-cache-path", folder / "cache", "--eval-iters", 0,
                           "--save", folder / "save", "--metrics-path", folder / "metrics.jsonl", "--peak-tflops", 1, *options)
    peers.run("msckpt", "convert", "--load-dir", checkpoint, "--save-dir", folder / "trained", "--drop-optimizer")
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return steps, load_file(folder / "trained" / "model.safetensors")


def batches(folder, documents, flags):
    """The samples in the order that mstrain drew them: [global batch, seq_length + 1] for each step."""
    document_index, sample_index, shuffle_index = (
        numpy.load(next((folder / "cache").glob(f"*-train-{kind}_index.npy"))) for kind in ("document", "sample", "shuffle"))
    flat = numpy.concatenate([documents[document] for document in document_index])
    begins = numpy.concatenate([[0], numpy.cumsum([len(documents[document]) for document in document_index])])
    size, seq = flags["global-batch-size"], flags["seq-length"]
    for step in range(STEPS):
        rows = []
        for drawn in shuffle_index[step * size: (step + 1) * size]:
            position, offset = sample_index[drawn]
            first = begins[position] + offset
            rows.append(flat[first: first + seq + 1])
        yield torch.from_numpy(numpy.stack(rows))


def learning_rate(step, flags):
    """Megatron's OptimizerParamScheduler, for the update after `step` completed ones."""
    peak, low, warmup = flags["lr"], flags["min-lr"], flags["lr-warmup-iters"]
    if warmup > 0 and step <= warmup:
        return flags["lr-warmup-init"] + (peak - flags["lr-warmup-init"]) * step / warmup
    if flags["lr-decay-style"] == "constant":
        return peak
    ratio = (step - warmup) / (STEPS - warmup)
    return low + (peak - low) * (1 - ratio if flags["lr-decay-style"] == "linear" else 0.5 * (1 + math.cos(math.pi * ratio)))


def train_theirs(folder, documents, flags):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32)
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": flags["weight-decay"]},
              {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(flags["adam-beta1"], flags["adam-beta2"]), eps=flags["adam-eps"])
    losses, norms = [], []
    for step, rows in enumerate(batches(folder, documents, flags)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, flags)
        optimizer.zero_grad()
        logits = model(input_ids=rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), flags["clip-grad"]).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, model


def check(name, folder):
    shape, own = CASES[name]
    flags = {**COMMON, **own}
    folder.mkdir(parents=True)
    make_model(shape, folder / "hf")
    documents = make_documents(shape["vocab_size"])
    peers.write_indexed_dataset(folder / "tokens", documents)
    steps, weights = train_ours(folder, flags)
    losses, norms, model = train_theirs(folder, documents, flags)
    model.save_pretrained(folder / "torch")
    (folder / "reference.json").write_text(json.dumps({"flags": flags, "steps": STEPS, "losses": losses,
                                                       "grad_norms": norms}) + "\n")
    reference = load_file(folder / "torch" / "model.safetensors")
    assert reference.keys() == weights.keys(), reference.keys() ^ weights.keys()
    loss_error = max(abs(ours["lm loss"] - loss) / loss for ours, loss in zip(steps, losses, strict=True))
    norm_error = max(abs(ours["grad norm"] - norm) / norm for ours, norm in zip(steps, norms, strict=True))
    weight_error, worst = max(((weights[key].double() - tensor.double()).norm().item() / tensor.double().norm().item(), key)
                              for key, tensor in reference.items())
    good = loss_error <= LOSS_BAR and weight_error <= WEIGHT_BAR
    print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, clipped in {sum(n > flags['clip-grad'] for n in norms)} of "
          f"{STEPS} steps | largest relative error: loss {loss_error:.2e}, grad norm {norm_error:.2e}, weights "
          f"{weight_error:.2e} ({worst}){'' if good else ' | MISSES THE BAR'}", flush=True)
    return good


def write_golden(folder, target):
    target.mkdir(parents=True, exist_ok=True)
    for name in ("hf", "torch"):
        shutil.rmtree(target / name, ignore_errors=True)
        shutil.copytree(folder / name, target / name, copy_function=shutil.copyfile)
    for name in ("tokens.bin", "tokens.idx", "reference.json"):
        shutil.copyfile(folder / name, target / name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=pathlib.Path, help="work here and leave the files")
    parser.add_argument("--write-golden", type=pathlib.Path, metavar="FOLDER", help="freeze the case `golden` there")
    arguments = parser.parse_args()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)  # the model is small, and threads that wait for each other starve on a busy machine
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.keep or pathlib.Path(temporary)
        names = ["golden"] if arguments.write_golden else list(CASES)
        good = [check(name, work / name) for name in names]
        if arguments.write_golden and all(good):
            write_golden(work / "golden", arguments.write_golden)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
