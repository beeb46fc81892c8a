#!/usr/bin/env python3
"""msdata against other implementations: a numpy reader of .bin/.idx, and the `tokenizers` and `sentencepiece` libraries.

Trains small tokenizers of every kind that train/data supports. msdata tokenizes mixed-language text and random Unicode with
them, numpy reads the ids, and msdata converts them back to text. Exit 77 and SKIPPED without the libraries;
MS_PEERS_PYTHON names an interpreter that has them.
  compare_peers.py MSDATA        MS_TEST_BYTES: bytes of text (1,000,000)
"""
import glob
import itertools
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../bench/peers"))
import peers  # noqa: E402

peers.need("numpy", "tokenizers", "sentencepiece")
import numpy as np  # noqa: E402
import sentencepiece  # noqa: E402
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,  # noqa: E402
                        processors, trainers)

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


def random_texts(rng):
    pools = [[*range(0x20, 0x7F)], [9, 10, 13, 0x20, 0x20, 0xA0, 0x2003, 0x85], [*range(0x80, 0x600)],
             [*range(0x600, 0x3100)], [*range(0x3100, 0xD800)], [*range(0xE000, 0x20000)], [*range(0x20000, 0x110000, 97)],
             [*range(0x300, 0x370), *range(0x1100, 0x1200), 0x61, 0x65, 0x6F], [0x27, 0x73, 0x53, 0x17F, 0x6C, 0x4C, 0x52, 0x65],
             [*range(0x1F300, 0x1FAFF), 0x200D, 0xFE0F], [0x2581, 0x20, 0x61, 0x3C, 0x3E, 0x30, 0x78]]
    # Characters that this Python does not know may be newer than our tables, or than the library's.
    pools = [[c for c in pool if unicodedata.category(chr(c)) != "Cn"] for pool in pools]
    while True:
        yield "".join(chr(rng.choice(rng.choice(pools))) for _ in range(rng.randrange(1, 60)))


def random_words(rng):
    """Words of one script after another, with spaces, digits and marks between them."""
    scripts = [(0x61, 0x7A), (0xE0, 0xFF), (0x3B1, 0x3C9), (0x430, 0x44F), (0x5D0, 0x5EA), (0x627, 0x64A), (0x905, 0x939),
               (0xE01, 0xE2E), (0x10D0, 0x10F0), (0x1200, 0x1248), (0x3041, 0x3096), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3)]
    while True:
        words = []
        for _ in range(rng.randrange(1, 80)):
            first, last = rng.choice(scripts)
            words.append("".join(chr(rng.randint(first, last)) for _ in range(rng.randrange(1, 9))))
            words.append(rng.choice([" ", " ", " ", ", ", ". ", "\n", "  ", " 1984 ", "\u0301 ", "-", "\t", " <user> ", "…"]))
        yield "".join(words)


def machine_texts(rng):
    """Paragraphs of files that every machine has: code, licences, messages in many languages."""
    paths = [path for pattern in ("/usr/lib/python3*/*.py", "/usr/share/common-licenses/*", "/usr/include/*.h",
                                  "/usr/share/locale/*/LC_MESSAGES/*.mo", "/usr/share/perl/*/unicore/*.pl")
             for path in sorted(glob.glob(pattern))]
    rng.shuffle(paths)
    for path in paths:
        with open(path, encoding="utf-8", errors="ignore") as file:
            text = file.read(40000).replace("\0", "\n")
        for start in range(0, len(text), 4000):
            yield text[start:start + 4000]


def all_texts(rng, size_bytes):
    """TEXTS, then equal parts of text from this machine, words of many scripts, and random characters, up to the size."""
    texts = list(TEXTS)
    for source in (machine_texts(rng), random_words(rng), random_texts(rng)):
        left = size_bytes // 3
        for text in source:
            text = "".join(c for c in text if unicodedata.category(c) not in ("Cn", "Cs"))
            if not text:
                continue
            texts.append(text)
            left -= len(text.encode())
            if left < 0:
                break
    return texts


def make(name, pre_tokenizer, normalizer=None, bos=False, ignore_merges=False, vocab_size=900):
    """Trains a tokenizer on TEXTS, with added tokens of every kind."""
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
    """(name, tokenizer) of every kind that train/data supports."""
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


    for kind in ("llama2", "phi3", "mistral", "gemma", "metaspace"):
        yield kind, from_sentencepiece(kind, **options)


def from_sentencepiece(kind, vocab_size=900):
    """A tokenizer as converted from a SentencePiece BPE model: characters, and bytes for those it lacks."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(TEXTS[:4] * 2, trainers.BpeTrainer(vocab_size=vocab_size // 2, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    fallback = kind != "metaspace"
    names = ["<unk>", "<s>", "</s>", "<|user|>", *([f"<0x{byte:02X}>" for byte in range(256)] if fallback else [])]
    names += [token for token in sorted(model["vocab"], key=model["vocab"].get) if token not in names]
    replace = normalizers.Replace(" ", "\u2581")
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)},
                                     merges=[tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]],
                                     unk_token="<unk>", byte_fallback=fallback, fuse_unk=fallback))
    spaces = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*spaces, decoders.Strip(" ", 1, 0)])
    if kind in ("llama2", "phi3"):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), replace])
    elif kind == "mistral":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    elif kind == "gemma":
        tokenizer.normalizer = replace
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        tokenizer.decoder = decoders.Sequence(spaces)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
        tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.add_special_tokens([AddedToken("<|user|>", rstrip=kind == "phi3", normalized=False)])
    tokenizer.add_tokens(["<user>"])
    if kind != "gemma":
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def sentencepiece_models(folder):
    """(name, file) of SentencePiece models of every kind, trained on text from this machine."""
    source = os.path.join(folder, "train.txt")
    with open(source, "w", encoding="utf-8") as file:
        file.write("\n".join(TEXTS[:9] * 3 + list(itertools.islice(machine_texts(random.Random(SEED)), 60)))[:200000])
    common = {"input": source, "character_coverage": 0.99, "minloglevel": 2, "num_threads": 1}
    makes = {
        "unigram": {"model_type": "unigram", "vocab_size": 2000, "hard_vocab_limit": False},
        "unigram_bytes": {"model_type": "unigram", "vocab_size": 3000, "hard_vocab_limit": False, "byte_fallback": True, "add_dummy_prefix": False,
                          "remove_extra_whitespaces": False, "normalization_rule_name": "identity"},
        "llama2": {"model_type": "bpe", "vocab_size": 4000, "byte_fallback": True, "split_digits": True,
                   "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                   "allow_whitespace_only_pieces": True},
        "bpe_nfkc_cf": {"model_type": "bpe", "vocab_size": 4000, "normalization_rule_name": "nfkc_cf",
                        "user_defined_symbols": ["<user>", "<|special|>"], "treat_whitespace_as_suffix": True},
    }
    for name, flags in makes.items():
        prefix = os.path.join(folder, name)
        sentencepiece.SentencePieceTrainer.train(model_prefix=prefix, **common, **flags)
        yield name, prefix + ".model"


def read_indexed(prefix):
    """Documents of PREFIX.bin/.idx, read according to the format's definition."""
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


class Work:
    """Runs msdata on one list of texts."""

    def __init__(self, msdata, folder, texts):
        self.msdata, self.folder, self.texts = msdata, folder, texts
        self.source = os.path.join(folder, "in.jsonl")
        with open(self.source, "w", encoding="utf-8") as file:
            for text in texts:
                file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")

    def run(self, *arguments):
        return subprocess.run([self.msdata, *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, encoding="utf-8").stdout

    def encode(self, *flags):
        prefix = self.run("preprocess", self.source, "--output-prefix", os.path.join(self.folder, "out"), *flags).strip()
        documents = read_indexed(prefix)
        assert len(documents) == len(self.texts)
        return prefix, documents

    def compare(self, name, theirs, decoded, eod, *flags, same=lambda ours, wanted: False):
        """theirs: ids without eod, per text; decoded: text of ids, or None if the library decodes it wrongly; same: whether other
        ids are equally good."""
        ties = 0
        for workers in ("1", "3"):
            prefix, documents = self.encode("--append-eod", "--workers", workers, *flags)
            for text, ours, wanted in zip(self.texts, documents, theirs):
                wanted = wanted + ([eod] if wanted else [])
                if ours != wanted and same(ours, wanted):
                    ties += 1
                elif ours != wanted:
                    at = next((i for i, (x, y) in enumerate(zip(ours, wanted)) if x != y), min(len(ours), len(wanted)))
                    sys.exit(f"{name}, seed {SEED}: {text!r}\n differs from id {at} on: ours {ours[at:at + 20]}\n"
                             f" theirs {wanted[at:at + 20]}")
        shown = json.loads(self.run("inspect", prefix, "--json", "--show", str(len(self.texts)), "--show-tokens",
                                    str(1 << 40), *flags))["sets"][0]["text"]
        assert len(shown) == len(self.texts)
        for text, ours, ids in zip(self.texts, shown, theirs):
            wanted = decoded(text, ids)
            if wanted is not None and ours != wanted:
                sys.exit(f"{name}, seed {SEED}: the ids of {text!r} decode to\n ours   {ours!r}\n theirs {wanted!r}")
        print(f"{name}: ids of {len(self.texts)} texts and the texts of their ids are those of the library"
              + (f", but for the order of equals in {ties // 2}" if ties else ""), flush=True)
        assert ties < len(self.texts) / 50, ties


def compare_hugging_face(work, folder):
    for name, tokenizer in kinds():
        path = os.path.join(folder, name)
        os.mkdir(path)
        tokenizer.save(os.path.join(path, "tokenizer.json"))
        eod = next(i for i in map(tokenizer.token_to_id, ("<|endoftext|>", "</s>")) if i is not None)
        # The library's byte-level decoder treats an added token as the characters of bytes, and breaks those above ASCII.
        decoded = lambda text, ids, t=tokenizer: None if "<ACCENT" in text else t.decode(
            [i for i in ids if i != eod], skip_special_tokens=False)
        work.compare(name, [tokenizer.encode(text).ids for text in work.texts], decoded, eod, "--tokenizer-type",
                     "HuggingFaceTokenizer", "--tokenizer-model", path)


def compare_gpt2_files(work, folder):
    _, trained = make("gpt2_files", pre_tokenizers.ByteLevel(add_prefix_space=False))
    vocab, merges = trained.model.save(folder)
    plain = Tokenizer(models.BPE.from_file(vocab, merges))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    eod = plain.token_to_id("<|endoftext|>")
    work.compare("GPT2BPETokenizer", [plain.encode(text).ids for text in work.texts], lambda text, ids: plain.decode(ids), eod,
                 "--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", vocab, "--merge-file", merges)


def megatrons_tokenizer(model):
    """Encoder and eod of Megatron's SentencePieceTokenizer, which cuts its own names out of the text before the model."""
    ids = {model.id_to_piece(i): i for i in range(len(model))}
    names = ["<CLS>", "<SEP>", "<EOD>", "<MASK>"]
    names += [model.id_to_piece(i) if i >= 0 else other
              for i, other in ((model.pad_id(), "<PAD>"), (model.bos_id(), "<BOS>"), (model.eos_id(), "<EOS>"))]
    for name in names:
        ids.setdefault(name, len(ids))

    def encode(text):
        out = []
        while True:
            found = [(text.index(name), name) for name in names if name in text]
            if not found:
                return out + model.encode(text)
            at, name = min(found, key=lambda pair: pair[0])
            out += model.encode(text[:at]) + [ids[name]]
            text = text[at + len(name):]
    return encode, ids["<EOD>"]


def same_score(model):
    """Among segmentations with equal scores, a unigram model chooses differently from release 0.2.2 on than in 0.1.97 to 0.2.1."""
    if tuple(map(int, sentencepiece.__version__.split(".")[:3])) < (0, 2, 2):
        return lambda ours, wanted: False
    score = lambda ids: sum(model.get_score(i) for i in ids if i < len(model))
    return lambda ours, wanted: abs(score(ours) - score(wanted)) < 1e-5 * abs(score(wanted))


def compare_sentencepiece(work, folder):
    for name, file in sentencepiece_models(folder):
        model = sentencepiece.SentencePieceProcessor(model_file=file)
        same = same_score(model) if name.startswith("unigram") else lambda ours, wanted: False
        decode = lambda text, ids, m=model: m.decode([i for i in ids if i != m.eos_id()])
        ids = model.encode(work.texts)
        encode, eod = megatrons_tokenizer(model)
        for kind, theirs, end, text_of in (
                ("GPTSentencePieceTokenizer", ids, model.eos_id(), decode),
                ("Llama2Tokenizer", [[model.bos_id(), *row] for row in ids], model.eos_id(), decode),
                ("SentencePieceTokenizer", [encode(text) for text in work.texts], eod, lambda text, row: None)):
            work.compare(f"{kind} {name}", theirs, text_of, end, "--tokenizer-type", kind, "--tokenizer-model", file, same=same)


def main():
    texts = all_texts(random.Random(SEED), int(os.environ.get("MS_TEST_BYTES", "1000000")))
    print(f"{len(texts)} texts, {sum(len(text.encode()) for text in texts)} bytes, MS_TEST_SEED={SEED}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Work(sys.argv[1], folder, texts)
        _, documents = work.encode("--append-eod")
        assert documents == [[*text.encode(), 256] for text in texts], "byte-level ids differ"
        print("byte level: documents as numpy reads them")
        compare_gpt2_files(work, folder)
        compare_sentencepiece(work, folder)
        compare_hugging_face(work, folder)


if __name__ == "__main__":
    main()
