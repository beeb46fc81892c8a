#!/usr/bin/env python3
"""msdata against other implementations: a numpy reader of .bin/.idx, and the `tokenizers` library.

Small tokenizers are trained on the spot, of every kind that train/data knows; msdata tokenizes mixed-language text and
random Unicode with them, and numpy reads the ids back. Exit 77 and SKIPPED without numpy or tokenizers.
  compare_peers.py MSDATA
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

try:
    import numpy as np
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

SEED = int(os.environ.get("MS_TEST_SEED", "1234"))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
TEXTS = [
    "Hello world, it's a test. We'll see what they've done; I'M SURE you'd like IT'S and 'ſ and 'RE.",
    "  leading spaces,\ttabs\t\tand \n\n new lines \r\n\r\n  mixed   \n  end  ",
    "for (int i = 0; i < 1234567; ++i) { x[i] = y[i] * 3.14159e-10; }\n\n\t// done!!!\n",
    "Größe, naïve café, Ångström, ﬁne, ½ ²³ Ⅷ ٣٤ ४५६७८ 12345 1234567890",
    "Привет мир! Это проверка. 日本語のテキストと漢字、カタカナ。 中文文本测试,包括标点。 한국어 텍스트입니다.",
    "مرحبا بالعالم. שלום עולם. नमस्ते दुनिया। ขอบคุณมาก Ελληνικά ქართული አማርኛ",
    "emoji 🙂👩‍👩‍👧‍👦🇩🇪 and symbols ∑∫√ → ⇒ … — “quotes” ‘single’ \u00a0nbsp\u2003em\u3000ideographic\u2028sep\x85nel",
    "de\u0301compose\u0301 a\u030a\u0323 q\u0307\u0323 \u1100\u1161\u11a8 \u212b \u2126 \u0958 \u1e9b\u0323 \uac00\u11a8",
    "<|special|> in the middle<|special|><|spec|>and <mask> stripped   <mask>   here <user> café<ACCENTÉ>",
    "a" * 3000 + " " * 500 + "\n" * 40 + "1" * 300 + "!" * 300,
    "x", " ", "\n", "'", "''s", " 's", "\u0000\u0001\u007f",
]


def random_texts(rng, count):
    pools = [[*range(0x20, 0x7F)], [9, 10, 13, 0x20, 0x20, 0xA0, 0x2003, 0x85], [*range(0x80, 0x600)],
             [*range(0x600, 0x3100)], [*range(0x3100, 0xD800)], [*range(0xE000, 0x20000)], [*range(0x20000, 0x110000, 97)],
             [*range(0x300, 0x370), *range(0x1100, 0x1200), 0x61, 0x65, 0x6F], [0x27, 0x73, 0x53, 0x17F, 0x6C, 0x4C, 0x52, 0x65]]
    # Characters that this Python does not know may be newer than our tables, or than the library's.
    pools = [[c for c in pool if unicodedata.category(chr(c)) != "Cn"] for pool in pools]
    for _ in range(count):
        yield "".join(chr(rng.choice(rng.choice(pools))) for _ in range(rng.randrange(1, 60)))


def make(name, pre_tokenizer, normalizer=None, bos=False, ignore_merges=False, vocab_size=900):
    """A tokenizer trained on TEXTS, with added tokens of every kind."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 2, trainer)
    tokenizer.add_special_tokens(["<|special|>", "<|spec|>", AddedToken("<mask>", lstrip=True, rstrip=True)])
    tokenizer.add_tokens(["<user>", "<ACCENTÉ>"])
    if bos:
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|special|> $A <|spec|>", special_tokens=[
                ("<|special|>", tokenizer.token_to_id("<|special|>")), ("<|spec|>", tokenizer.token_to_id("<|spec|>"))])])
    return name, tokenizer


def kinds(**options):
    """(name, tokenizer) of every kind that train/data knows."""
    byte_level = pre_tokenizers.ByteLevel
    split = lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated")
    tail = byte_level(add_prefix_space=False, use_regex=False)
    yield make("gpt2", byte_level(add_prefix_space=False), **options)
    yield make("gpt2_prefix_space", byte_level(add_prefix_space=True), **options)
    yield make("llama3", pre_tokenizers.Sequence([split(LLAMA3), tail]), bos=True, ignore_merges=True,
               **options)
    yield make("qwen2", pre_tokenizers.Sequence([split(QWEN2), tail]), normalizer=normalizers.NFC(),
               **options)
    yield make("digits", pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  byte_level(add_prefix_space=False)]), **options)
    yield make("digit_runs", pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=False),
                                                      byte_level(add_prefix_space=True)]), **options)


def read_indexed(prefix):
    """Documents of PREFIX.bin/.idx, read as the format is written down."""
    with open(prefix + ".idx", "rb") as file:
        idx = file.read()
    assert idx[:9] == b"MMIDIDX\0\0", idx[:9]
    version, code, sequences, entries = struct.unpack("<QBQQ", idx[9:34])
    assert version == 1
    dtype = {8: np.uint16, 4: np.int32}[code]
    lengths = np.frombuffer(idx, np.int32, sequences, 34)
    pointers = np.frombuffer(idx, np.int64, sequences, 34 + 4 * sequences)
    documents = np.frombuffer(idx, np.int64, entries, 34 + 12 * sequences)
    assert len(idx) == 34 + 12 * sequences + 8 * entries and documents[0] == 0 and documents[-1] == sequences
    data = np.fromfile(prefix + ".bin", dtype)
    size = np.dtype(dtype).itemsize
    read = [data[p // size:p // size + n].tolist() for p, n in zip(pointers, lengths)]
    return [sum(read[a:b], []) for a, b in zip(documents[:-1], documents[1:])]


def preprocess(msdata, folder, texts, *flags):
    source = os.path.join(folder, "in.jsonl")
    with open(source, "w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    ran = subprocess.run([msdata, "preprocess", source, "--output-prefix", os.path.join(folder, "out"), *flags],
                         check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return read_indexed(ran.stdout.strip())


def main():
    msdata = sys.argv[1]
    rng = random.Random(SEED)
    texts = TEXTS + list(random_texts(rng, int(os.environ.get("MS_TEST_TEXTS", "2000"))))
    with tempfile.TemporaryDirectory() as folder:
        documents = preprocess(msdata, folder, texts, "--append-eod")
        assert documents == [[*text.encode(), 256] for text in texts], "byte-level ids differ"
        print(f"byte level: {len(texts)} documents as numpy reads them")
        for name, tokenizer in kinds():
            path = os.path.join(folder, name)
            os.mkdir(path)
            tokenizer.save(os.path.join(path, "tokenizer.json"))
            eod = tokenizer.token_to_id("<|endoftext|>")
            for workers in ("1", "3"):
                documents = preprocess(msdata, folder, texts, "--append-eod", "--workers", workers, "--tokenizer-type",
                                       "HuggingFaceTokenizer", "--tokenizer-model", path)
                assert len(documents) == len(texts)
                for text, ours in zip(texts, documents):
                    theirs = tokenizer.encode(text).ids
                    if ours != theirs + [eod]:
                        sys.exit(f"{name}, seed {SEED}: {text!r}\n ours   {[tokenizer.id_to_token(i) for i in ours]}\n"
                                 f" theirs {[tokenizer.id_to_token(i) for i in theirs]}")
            print(f"{name}: ids of {len(texts)} texts equal those of tokenizers")


if __name__ == "__main__":
    main()
