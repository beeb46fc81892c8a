#!/usr/bin/env python3
"""Writes the tokenizer goldens of tests/data/train: tiny tokenizers, and the ids that the `tokenizers` and `sentencepiece`
libraries compute with them: tokenizer_goldens.json, and sentencepiece/ with two models.

  make_tokenizer_goldens.py TESTS_DATA_TRAIN
"""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare_peers  # noqa: E402  (exits 77 where the libraries are missing)
import sentencepiece  # noqa: E402

KINDS = ("gpt2_prefix_space", "llama3", "qwen2", "llama2", "phi3", "mistral", "gemma", "metaspace")
TEXTS = [text for text in compare_peers.TEXTS if len(text) < 300]
# A character map of its own keeps the model small: that of nfkc takes 240 kB.
RULES = "41 30A\tE5\nFB01\t66 69\nA0\t20\n3000\t20\n2026\t2E 2E\n212B\tE5\n"


def tokenizers_goldens():
    goldens = []
    for name, tokenizer in compare_peers.kinds(vocab_size=330):
        if name not in KINDS:
            continue
        rows = [tokenizer.encode(text).ids for text in TEXTS]
        eod = next(i for i in map(tokenizer.token_to_id, ("<|endoftext|>", "</s>")) if i is not None)
        decoded = [None if "<ACCENT" in text else tokenizer.decode([i for i in ids if i != eod], skip_special_tokens=False)
                   for text, ids in zip(TEXTS, rows)]
        goldens.append({"name": name, "tokenizer": json.loads(tokenizer.to_str()), "ids": rows, "decoded": decoded})
    return {"texts": TEXTS, "goldens": goldens}


def sentencepiece_goldens(folder):
    # "!!" + "!" and "!" + "!!" have equal scores; which of them a unigram model chooses changed with release 0.2.2.
    texts = [text.replace("!!!", "!!") for text in TEXTS]
    with tempfile.TemporaryDirectory() as work:
        text, rules = os.path.join(work, "text"), os.path.join(work, "rules.tsv")
        with open(text, "w", encoding="utf-8") as file:
            file.write("\n".join(texts * 3))
        with open(rules, "w", encoding="utf-8") as file:
            file.write(RULES)
        common = {"input": text, "character_coverage": 0.98, "minloglevel": 2, "num_threads": 1}
        sentencepiece.SentencePieceTrainer.train(model_prefix=os.path.join(work, "unigram"), model_type="unigram",
                                                 vocab_size=300, hard_vocab_limit=False, normalization_rule_tsv=rules,
                                                 **common)
        sentencepiece.SentencePieceTrainer.train(
            model_prefix=os.path.join(work, "bpe"), model_type="bpe", vocab_size=480, byte_fallback=True, split_digits=True,
            normalization_rule_name="identity", remove_extra_whitespaces=False, **common)
        goldens = []
        for name in ("unigram.model", "bpe.model"):
            with open(os.path.join(work, name), "rb") as source, open(os.path.join(folder, name), "wb") as copy:
                copy.write(source.read())
            model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, name))
            rows = model.encode(texts)
            goldens.append({"model": name, "vocab_size": len(model), "bos": model.bos_id(), "eos": model.eos_id(), "ids": rows,
                            "decoded": [model.decode(row) for row in rows]})
        return {"texts": texts, "goldens": goldens}


def main():
    folder = sys.argv[1]
    os.makedirs(os.path.join(folder, "sentencepiece"), exist_ok=True)
    for path, goldens in (("tokenizer_goldens.json", tokenizers_goldens()),
                          ("sentencepiece/goldens.json", sentencepiece_goldens(os.path.join(folder, "sentencepiece")))):
        with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
            file.write(json.dumps(goldens, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
