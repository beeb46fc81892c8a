#!/usr/bin/env python3
"""The hostile files of tests/data/bad, each read by the binary for its format: one line that names the file, and exit code 3
for a file that contradicts itself or its format, 2 for one that is not supported."""
import os
import shutil
import sys

import training

BAD = os.path.join(os.environ["MS_SOURCE"], "tests/data/bad")
HEALTHY = os.path.join(os.environ["MS_SOURCE"], "tests/data/hf_llama_tiny")
# Valid files of a kind that is not supported.
CODE_2 = {"tokenizer/model_of_unknown_type"}


def model_with(place, name, source):
    """Inspects a Hugging Face folder with one file replaced by the hostile one."""
    folder = place.path("model")
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    for healthy in ("config.json", "model.safetensors"):
        if healthy != name and not (name.endswith("index.json") and healthy == "model.safetensors"):
            shutil.copy(os.path.join(HEALTHY, healthy), folder)
    shutil.copy(source, os.path.join(folder, name))
    return place.tool("msckpt", "inspect", "model")


def trace(place, source):
    shutil.copy(source, place.path("rank_00000.mstrace"))
    return place.tool("msprof", "analyze", "rank_00000.mstrace")


def data_set(place, source):
    shutil.copy(source, place.path("set.idx"))
    with open(place.path("set.bin"), "wb") as file:
        file.write(bytes(8))
    return place.tool("msdata", "inspect", "set")


def tokenizer(place, source):
    shutil.copy(source, place.path("tokenizer.json"))
    with open(place.path("text.txt"), "w", encoding="utf-8") as file:
        file.write("ab")
    return place.tool("msdata", "preprocess", "text.txt", "--output-prefix", "out", "--tokenizer-type", "HuggingFaceTokenizer",
                      "--tokenizer-model", "tokenizer.json")


def config(place, source):
    shutil.copy(source, place.path("config.json"))
    return place.tool("mstrain", *training.MODEL, "--train-iters", "1", "--config", "config.json", "--data-path", "nowhere")


# kind of file: its reader, a word of the error line that names the file, the exit code unless CODE_2 lists the file.
READERS = {
    "safetensors": (lambda place, path: model_with(place, "model.safetensors", path), "model.safetensors", 3),
    "hf_config": (lambda place, path: model_with(place, "config.json", path), "config.json", 3),
    "hf_index": (lambda place, path: model_with(place, "model.safetensors.index.json", path), "model", 3),
    "mstrace": (trace, "rank_00000.mstrace", 3),
    "idx": (data_set, "set.idx", 3),
    "tokenizer": (tokenizer, "tokenizer.json", 3),
    "config": (config, "config", 2),
}


def main():
    with training.workplace(needs_mpirun=False) as place:
        kinds = sorted(name for name in os.listdir(BAD) if os.path.isdir(os.path.join(BAD, name)))
        place.expect(kinds == sorted(READERS), f"every kind of file has a reader: {kinds}")
        for kind in kinds:
            read, word, code = READERS[kind]
            for name in sorted(os.listdir(os.path.join(BAD, kind))):
                ran = read(place, os.path.join(BAD, kind, name))
                wanted = 2 if f"{kind}/{name}" in CODE_2 else code
                place.expect(ran.exit == wanted, f"{kind}/{name}: exit code {wanted}", ran)
                lines = [line for line in ran.stderr.splitlines() if line.startswith("E ")]
                place.expect(len(lines) == 1 and ran.stdout == "" and len(lines[0]) < 1000, f"{kind}/{name}: one line", ran)
                place.expect(any(word in line for line in lines), f"{kind}/{name}: the line names the file", ran)
                left = [n for n in os.listdir(place.folder) if n.startswith("out") or ".tmp" in n]
                place.expect(not left, f"{kind}/{name}: nothing is left: {left}", ran)


if __name__ == "__main__":
    sys.exit(main())
