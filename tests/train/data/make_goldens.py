#!/usr/bin/env python3
"""Writes tests/data/train/data_goldens.json: the indices of Megatron's data sets, computed with numpy.

A second implementation of the rules in train/data's headers, in which numpy itself shuffles.
  make_goldens.py > tests/data/train/data_goldens.json
"""
import json
import math
import sys

try:
    import numpy as np
except ImportError:
    print("SKIPPED: needs numpy")
    sys.exit(77)


def gpt_index(lengths, begin, end, num_samples, seq, seed):
    random = np.random.RandomState(seed)
    documents = np.arange(begin, end, dtype=np.int64)
    tokens = int(sum(lengths[begin:end]))
    epochs = 1
    while num_samples and epochs * tokens < num_samples * seq + 1:
        epochs += 1
    total = (epochs * tokens - 1) // seq
    before_last = ((epochs - 1) * tokens - 1) // seq
    separate = epochs > 1 and num_samples - before_last < int(0.80 * ((tokens - 1) // seq))
    parts = [epochs - 1, 1] if separate else [epochs]
    index = []
    for count in parts:
        part = np.tile(documents, count)
        random.shuffle(part)
        index.append(part)
    document_index = np.concatenate(index)
    # Every token of the concatenated documents with its position; sample i begins at token i * seq.
    places = [(p, o) for p, d in enumerate(document_index) for o in range(lengths[d])]
    # The first sample begins at (0, 0) even if document 0 is empty.
    sample_index = [(0, 0)] + [places[i * seq] for i in range(1, total + 1)]
    shuffles = [np.arange(before_last), np.arange(before_last, total)] if separate else [np.arange(total)]
    for part in shuffles:
        random.shuffle(part)
    return {"begin": begin, "end": end, "num_samples": num_samples, "seq_length": seq, "seed": seed,
            "lengths": lengths[begin:end], "separate": bool(separate), "document_index": document_index.tolist(),
            "sample_index": [x for pair in sample_index for x in pair],
            "shuffle_index": np.concatenate(shuffles).tolist()}


def blend(weights, size):
    weights = np.array(weights, dtype=np.float64)
    weights = weights / np.sum(weights)
    drawn = np.zeros(len(weights))
    out = []
    for i in range(size):
        d = int(np.argmax(weights * max(float(i), 1.0) - drawn))
        out.append([d, int(drawn[d])])
        drawn[d] += 1
    return out


def split(text, sequences):
    shares = [float(x) for x in text.split(",")]
    shares += [0.0] * (3 - len(shares))
    shares = (np.array(shares) / np.sum(np.array(shares))).tolist()
    bounds, at = [], 0
    for share in shares:
        bounds.append([int(round(at * float(sequences))), int(round((at + share) * float(sequences)))]
                      if at + share > at else None)
        at += share
    return bounds


def shuffled(seed, n):
    values = np.arange(n)
    np.random.RandomState(seed).shuffle(values)
    return values.tolist()


def main():
    # Lengths from a formula, so that the file shows the input; some documents have length zero.
    lengths = [(i * i * 7 + i * 3) % 41 for i in range(30)]
    weights = [[1, 1], [0.3, 0.7], [5, 1, 1, 3], [0.1] * 10 + [0.7, 0.3, 1e-3]]
    goldens = {
        "shuffle": [{"seed": s, "values": shuffled(s, n)} for s, n in ((0, 1), (1234, 2), (1234, 50), (4294967295, 33))],
        "gpt": [gpt_index(lengths, *case) for case in (
            (0, 30, 0, 16, 1234), (0, 30, 10, 16, 1234), (2, 19, 45, 16, 7), (2, 19, 41, 16, 7), (3, 9, 100, 7, 42),
            (5, 6, 9, 13, 1), (0, 30, 3, 200, 99))],
        "blend": [{"weights": w, "indices": blend(w, 60)} for w in weights],
        "normalize": [{"weights": [float(i * i % 97) + 0.1 for i in range(n)],
                       "sum_hex": float(np.sum(np.array([float(i * i % 97) + 0.1 for i in range(n)]))).hex()}
                      for n in (1, 3, 7, 8, 9, 31, 128, 129, 300)],
        "split": [{"split": s, "sequences": n, "bounds": split(s, n)}
                  for s in ("969,30,1", "98,1,1", "1", "90,10", "0,1,1", "1,0,1", "99.5,0.5,0")
                  for n in (5, 10, 100, 105, 1000, 12345)],
    }
    assert any(g["separate"] for g in goldens["gpt"]) and any(math.prod(b["weights"]) for b in goldens["blend"])
    print(json.dumps(goldens, separators=(",", ":")))


if __name__ == "__main__":
    main()
