#!/usr/bin/env python3
"""Compares msckpt convert with cp and with Python converters: seconds, GB/s, peak resident memory.

  convert_speed.py [--gib 8] [--rounds 3] [--folder DIR] [--json]

Makes a Hugging Face folder of a Llama of that many GiB of bf16, in shards, and converts it to a Megatron tree of TP 2 PP 2 in
the same type. msckpt and `cp -r` with sync take turns, and medians are reported; then the others run once each: transformers
and torch (torch_convert.py), safetensors' own save_file of the same bytes, and Megatron's convert.py if MS_MEGATRON names a
copy of Megatron that has the loader llama_mistral. Caches are cold at the start, and all data is on the disk at the end. For
programs in Python the time of imports is reported as start-up, and excluded from GB/s and from the bars. One rank file of ours
and of torch's must hold the same tensors. The bars: 0.9 of cp's speed within 256 MiB, and twice the speed of the fastest
converter with a tenth of its memory. Exit 1 if one is missed.

--folder chooses the disk, which needs space for two and a quarter times the model. MS_BIN is the folder of msckpt,
MS_PEERS_PYTHON an interpreter with torch, transformers and safetensors. A measured peak is never below that of this script,
about 15 MiB.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "peers"))
import peers  # noqa: E402

TP, PP, RANK = 2, 2, "mp_rank_01_001"
VOCAB, BLOCK, SHARD_BYTES = 32000, 64 << 20, 1 << 30
SPEED_OF_CP, PEAK_MIB, TIMES_FASTER, SHARE_OF_MEMORY = 0.9, 256, 2, 0.1


def config_of(gib):
    """The layers of Llama 3, or below 2 GiB those of a small model; as many as needed, in two stages."""
    hidden, ffn, heads, groups = (4096, 14336, 32, 8) if gib >= 2 else (2048, 5632, 16, 4)
    layer = 2 * hidden * (2 * hidden + 2 * hidden * groups // heads + 3 * ffn)
    layers = PP * max(1, round((gib * (1 << 30) - 4 * VOCAB * hidden) / layer / PP))
    return dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=hidden, intermediate_size=ffn,
                num_attention_heads=heads, num_key_value_heads=groups, num_hidden_layers=layers, vocab_size=VOCAB,
                hidden_act="silu", rms_norm_eps=1e-5, rope_theta=500000.0, max_position_embeddings=8192, attention_bias=False,
                mlp_bias=False, tie_word_embeddings=False, torch_dtype="bfloat16", bos_token_id=1, eos_token_id=2)


def shapes(config):
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    key_value = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    yield "model.embed_tokens.weight", [VOCAB, hidden]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", [hidden]
        yield prefix + "self_attn.q_proj.weight", [hidden, hidden]
        yield prefix + "self_attn.k_proj.weight", [key_value, hidden]
        yield prefix + "self_attn.v_proj.weight", [key_value, hidden]
        yield prefix + "self_attn.o_proj.weight", [hidden, hidden]
        yield prefix + "mlp.gate_proj.weight", [ffn, hidden]
        yield prefix + "mlp.up_proj.weight", [ffn, hidden]
        yield prefix + "mlp.down_proj.weight", [hidden, ffn]
        yield prefix + "post_attention_layernorm.weight", [hidden]
    yield "model.norm.weight", [hidden]
    yield "lm_head.weight", [VOCAB, hidden]


def make_model(folder, config):
    # Random bytes without infinities: the exponents' upper bits are cleared.
    mask = int.from_bytes(b"\xff\xbf" * (BLOCK // 2), "little")
    block = (int.from_bytes(os.urandom(BLOCK), "little") & mask).to_bytes(BLOCK, "little")
    shards, end = [{}], 0
    for name, shape in shapes(config):
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        if end + size > SHARD_BYTES:
            shards.append({})
            end = 0
        shards[-1][name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    weight_map, at = {}, 0
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        header = json.dumps({"__metadata__": {"format": "pt"}, **shard}).encode()
        header += b" " * (-len(header) % 8)
        with open(folder / name, "wb") as out:
            out.write(len(header).to_bytes(8, "little") + header)
            left = max(entry["data_offsets"][1] for entry in shard.values())
            while left > 0:
                part = memoryview(block)[at:at + left]
                out.write(part)
                left -= len(part)
                at = (at + len(part) + 4098) % BLOCK  # a different piece each time, so that no two tensors are equal
        weight_map.update({tensor: name for tensor in shard})
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    total = sum(entry["data_offsets"][1] - entry["data_offsets"][0] for shard in shards for entry in shard.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2))
    # Megatron's converter counts the words of one.
    words = {f"w{i}": i for i in range(VOCAB)}
    (folder / "tokenizer.json").write_text(json.dumps(
        {"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))


def drop_caches(folder):
    """For the whole system if root, else for these files."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3")
    except OSError:
        for path in folder.iterdir():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


class Bench:
    def __init__(self, folder, gib):
        self.source, self.target = folder / "hf", folder / "out"
        self.kept = {name: folder / f"{name}.pt" for name in ("msckpt", "torch")}
        self.source.mkdir()
        peers.in_child(make_model, self.source, config_of(gib))
        self.bytes = sum(path.stat().st_size for path in self.source.glob("*.safetensors"))

    def run(self, command, keep=None):
        """Runs a command that writes self.target, and removes the result except for a rank file."""
        drop_caches(self.source)
        ran = peers.measured(command)
        if keep and ran.exit_code == 0:
            os.replace(next(self.target.glob(f"*/{RANK}/model_optim_rng.pt")), self.kept[keep])
        shutil.rmtree(self.target, ignore_errors=True)
        return ran

    def rounds(self, count):
        """Rows of msckpt and of cp."""
        ours = [peers.binary("msckpt"), "convert", "--load-dir", self.source, "--save-dir", self.target, "--save-model-type",
                "mg", "--target-tensor-parallel-size", TP, "--target-pipeline-parallel-size", PP]
        copy = ["sh", "-c", 'cp -r "$0" "$1" && sync -f "$1"', self.source, self.target]
        runs = {"cp and sync": [], "msckpt convert": []}
        for _ in range(count):
            runs["cp and sync"].append(self.run(copy))
            runs["msckpt convert"].append(self.run(ours, "msckpt"))
        for name, of in runs.items():
            if any(ran.exit_code != 0 for ran in of):
                sys.exit(f"{name} failed")
        return [self.row(name, statistics.median(ran.seconds for ran in of), max(ran.peak_mib for ran in of), 0,
                         [round(ran.seconds, 3) for ran in of]) for name, of in runs.items()]

    def row(self, name, seconds, peak_mib, startup_s, all_s):
        return {"name": name, "seconds": seconds, "startup_s": startup_s, "GB_per_s": self.bytes / 1e9 / (seconds - startup_s),
                "peak_MiB": peak_mib, "seconds_of_runs": all_s}

    def python(self, name, verb, *more, keep=None):
        """Row of a command of torch_convert.py."""
        script = [sys.executable, os.path.join(HERE, "torch_convert.py"), verb]
        ran = self.run([*script, self.source, self.target, *more], keep)
        if ran.exit_code == 77:
            return {"name": name, "skipped": ran.out.strip()}
        if ran.exit_code != 0:
            sys.exit(f"{name} failed")
        return self.row(name, ran.seconds, ran.peak_mib, ran.seconds - float(ran.out.splitlines()[-1]), [round(ran.seconds, 3)])

    def megatron(self):
        name, root = "Megatron's convert", os.environ.get("MS_MEGATRON")
        tools = pathlib.Path(root or "") / "tools" / "checkpoint"
        loader = tools / "loader_llama_mistral.py"
        if not root or not loader.exists():
            return {"name": name, "skipped": "SKIPPED: set MS_MEGATRON to a copy of Megatron that has "
                                             "tools/checkpoint/loader_llama_mistral.py"}
        size = "llama3-8B" if "llama3-8B" in loader.read_text() else "llama3"  # the shapes come from config.json
        saver = "core" if (tools / "saver_core.py").exists() else "mcore"
        command = ["timeout", "3600", "env", f"PYTHONPATH={root}", "CUDA_DEVICE_MAX_CONNECTIONS=1",
                   os.environ.get("MS_PEERS_PYTHON", sys.executable), tools / "convert.py", "--model-type", "GPT", "--loader",
                   "llama_mistral", "--saver", saver, "--model-size", size, "--checkpoint-type", "hf", "--bf16",
                   "--tokenizer-model", self.source, "--load-dir", self.source, "--save-dir", self.target,
                   "--target-tensor-parallel-size", TP, "--target-pipeline-parallel-size", PP]
        ran = self.run(["sh", "-c", '"$@" >&2 && sync -f "$0"', self.source, *command])
        if ran.exit_code != 0:
            return {"name": name, "skipped": f"FAILED: exit {ran.exit_code}; it says why above"}
        return self.row(name, ran.seconds, ran.peak_mib, 0, [round(ran.seconds, 3)])

    def check(self):
        """Checks that our rank file and torch's hold the same tensors."""
        ran = peers.measured([sys.executable, os.path.join(HERE, "torch_convert.py"), "same", *self.kept.values()])
        if ran.exit_code != 0:
            sys.exit("msckpt and torch wrote different tensors")
        return ran.out.strip()


def bars(copy, ours, converters):
    """(name, value, whether it is met) for each bar."""
    yield f"speed of cp's: >= {SPEED_OF_CP}", round(copy["seconds"] / ours["seconds"], 2), \
        copy["seconds"] / ours["seconds"] >= SPEED_OF_CP
    yield f"MiB resident: <= {PEAK_MIB}", round(ours["peak_MiB"], 1), ours["peak_MiB"] <= PEAK_MIB
    ran = [row for row in converters if "skipped" not in row]
    if not ran:
        return
    fastest = max(ran, key=lambda row: row["GB_per_s"])
    faster, share = ours["GB_per_s"] / fastest["GB_per_s"], ours["peak_MiB"] / fastest["peak_MiB"]
    yield f"times as fast as {fastest['name']}: >= {TIMES_FASTER}", round(faster, 2), faster >= TIMES_FASTER
    yield f"of its memory: <= {SHARE_OF_MEMORY}", round(share, 3), share <= SHARE_OF_MEMORY


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="of ours and of cp")
    parser.add_argument("--folder", help="where to make all of it, which is removed again")
    parser.add_argument("--json", action="store_true", help="instead of a table")
    asked = parser.parse_args()
    peers.binary("msckpt")  # a missing one ends the script here, not after the model is made
    with tempfile.TemporaryDirectory(dir=asked.folder) as temporary:
        bench = Bench(pathlib.Path(temporary), asked.gib)
        copy, ours = bench.rounds(asked.rounds)
        torch = bench.python("transformers + torch", "convert", TP, PP, keep="torch")
        same = None if "skipped" in torch else bench.check()
        others = [torch, bench.megatron(), bench.python("safetensors save_file", "save")]
    rows = [copy, ours, *others]
    for row in rows:
        if "skipped" not in row:
            row["over_cp"] = copy["seconds"] / (row["seconds"] - row["startup_s"])
    judged = list(bars(copy, ours, others[:2]))
    if asked.json:
        print(json.dumps({"bytes": bench.bytes, "rows": rows, "same_tensors": same, "load": os.getloadavg()[0],
                          "bars": [{"bar": what, "seen": seen, "met": met} for what, seen, met in judged]}, indent=2))
    else:
        print(f"{bench.bytes / 2**30:.2f} GiB of bf16, Hugging Face to Megatron TP {TP} PP {PP}; load {os.getloadavg()[0]:.1f}")
        print(f"{'':22} {'s':>8} {'start-up':>9} {'GB/s':>6} {'MiB':>9} {'of cp':>6}")
        for row in rows:
            print(f"{row['name']:22} " + (row["skipped"] if "skipped" in row else
                  f"{row['seconds']:8.2f} {row['startup_s']:9.2f} {row['GB_per_s']:6.2f} {row['peak_MiB']:9.1f} {row['over_cp']:6.2f}"))
        print(f"{RANK} of ours and of torch's: " + (f"the same {same}" if same else "not compared"))
        for what, seen, met in judged:
            print(f"{'met   ' if met else 'MISSED'} {what}: {seen}")
    sys.exit(0 if all(met for _, _, met in judged) else 1)


if __name__ == "__main__":
    main()
