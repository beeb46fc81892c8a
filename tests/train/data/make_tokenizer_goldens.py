#!/usr/bin/env python3
"""Writes tests/data/train/tokenizer_goldens.json: tiny tokenizers and the ids that the `tokenizers` library gives.

  make_tokenizer_goldens.py > tests/data/train/tokenizer_goldens.json
"""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare_peers  # noqa: E402  (exits 77 where the library is missing)

KINDS = ("gpt2_prefix_space", "llama3", "qwen2")


def main():
    texts = [text for text in compare_peers.TEXTS if len(text) < 300]
    goldens = []
    for name, tokenizer in compare_peers.kinds(vocab_size=330):
        if name in KINDS:
            goldens.append({"name": name, "tokenizer": json.loads(tokenizer.to_str()),
                            "ids": [tokenizer.encode(text).ids for text in texts]})
    print(json.dumps({"texts": texts, "goldens": goldens}, separators=(",", ":")))


if __name__ == "__main__":
    main()
