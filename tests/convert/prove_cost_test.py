#!/usr/bin/env python3
"""A proof costs at most one more read of both sides. Measures the bytes that msckpt verify --against --prove, and msckpt convert --prove
beyond the conversion itself, read from the disk (read_bytes of /proc/PID/io), with cold caches, and compares them with the sizes of source
and result, for each format. Skipped if disk reads are not counted (tmpfs)."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

MSCKPT = os.path.join(os.environ["MS_BIN"], "msckpt")
LAYERS, HIDDEN, FFN, VOCAB = 4, 512, 1024, 2000
RESULTS = {"ms": ["--tp", "2"], "mg": ["--tp", "2"], "dist": ["--tp", "2"], "dcp": ["--dp", "2"], "ucp": [], "hf": [], "gguf": []}
SLACK = 1 << 20  # headers, the pages around the data, the program itself


def make_model(folder):
    """A Llama in bf16, with random values of one magnitude."""
    folder.mkdir()
    shapes = {"model.embed_tokens.weight": [VOCAB, HIDDEN], "model.norm.weight": [HIDDEN], "lm_head.weight": [VOCAB, HIDDEN]}
    for layer in range(LAYERS):
        for part in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"):
            shapes[f"model.layers.{layer}.{part}.weight"] = [HIDDEN, HIDDEN]
        for part in ("gate_proj", "up_proj"):
            shapes[f"model.layers.{layer}.mlp.{part}.weight"] = [FFN, HIDDEN]
        shapes[f"model.layers.{layer}.mlp.down_proj.weight"] = [HIDDEN, FFN]
        for part in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{layer}.{part}.weight"] = [HIDDEN]
    header, data = {}, bytearray()
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = bytearray(os.urandom(size))
        values[1::2] = b"\x3c" * (size // 2)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + size]}
        data += values
    text = json.dumps(header).encode()
    text = text.ljust((len(text) + 7) // 8 * 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": FFN, "max_position_embeddings": 64, "num_attention_heads": 8, "num_hidden_layers": LAYERS,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "vocab_size": VOCAB}))


def files_of(path):
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def drop_caches(path):
    for file in files_of(path):
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def read_bytes(*words):
    """Bytes that the program reads from the disk: the shell's counters include those of children that it has waited for."""
    shell = '"$@" > /dev/null || exit 1; while read -r line; do echo "$line"; done < /proc/$$/io'
    ran = subprocess.run(["bash", "-c", shell, "x", MSCKPT, *map(str, words)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return int(next(line for line in ran.stdout.splitlines() if line.startswith("read_bytes")).split()[1])


def main():
    failed = 0
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        work = pathlib.Path(folder)
        source = work / "source"
        make_model(source)
        size = sum(file.stat().st_size for file in files_of(source))
        drop_caches(source)
        read_bytes("inspect", source)  # the program's own pages
        drop_caches(source)
        seal = read_bytes("verify", source)
        if seal < 0.9 * size:
            print(f"SKIPPED: {seal} bytes of a file of {size} came from the disk of {folder}: reads are not counted or caches not dropped there")
            return 77
        for form, flags in RESULTS.items():
            target, proved = work / form, work / f"{form}_proved"
            drop_caches(source)
            plain = read_bytes("convert", "--load-dir", source, "--save-dir", target, "--to", form, *flags)
            drop_caches(source)
            more = read_bytes("convert", "--load-dir", source, "--save-dir", proved, "--to", form, *flags, "--prove") - plain
            both = size + sum(file.stat().st_size for file in files_of(target))
            drop_caches(source)
            drop_caches(target)
            alone = read_bytes("verify", target, "--against", source, "--prove")
            holds = more <= both + SLACK and alone <= both + SLACK and alone >= 0.9 * both
            failed += not holds
            print(f"{'' if holds else 'FAILED: '}{form}: convert --prove reads {more / both:.3f} of both sides more, verify --prove {alone / both:.3f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
