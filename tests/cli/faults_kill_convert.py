#!/usr/bin/env python3
"""SIGKILL of msckpt convert at random moments, to each format, into an existing folder and a new one. After a rerun the target
holds what an undisturbed conversion writes and no other file; after gc nothing of the attempt is left; with --resume the
median of kept bytes is at least half of those written before the kill.

  faults_kill_convert.py [KILLS]     default 30
"""
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

import training

KILLS = int(sys.argv[1]) if len(sys.argv) > 1 else 30
TARGETS = {
    "hf": ["--save-model-type", "hf", "--max-shard-size", "50MB"],
    "hf-bin": ["--save-model-type", "hf-bin", "--max-shard-size", "50MB"],
    "gguf": ["--save-model-type", "gguf"],
    "mg": ["--save-model-type", "mg", "--target-tensor-parallel-size", "2"],
    "dist": ["--save-model-type", "dist", "--target-pipeline-parallel-size", "2"],
    "dcp": ["--save-model-type", "dcp", "--target-data-parallel-size", "2"],
    "ucp": ["--save-model-type", "ucp"],
}
WAYS = ["rerun", "gc", "resume"]
# A file that is in the target folder before; dcp needs a new folder.
BEFORE = {"hf": "README.md", "hf-bin": "README.md", "gguf": "README.md", "mg": "iter_0000007/kept", "dist": "iter_0000007/kept", "ucp": "global_step7/kept"}
HIDDEN, FFN, HEADS, LAYERS, VOCAB = 1024, 2816, 8, 4, 8000


def make_model(folder):
    """A Llama with about 140 MB of bf16 weights, without infinities."""
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=HIDDEN, intermediate_size=FFN,
                  num_attention_heads=HEADS, num_key_value_heads=HEADS, num_hidden_layers=LAYERS, vocab_size=VOCAB, hidden_act="silu",
                  rms_norm_eps=1e-5, rope_theta=500000.0, max_position_embeddings=8192, attention_bias=False, mlp_bias=False,
                  tie_word_embeddings=False, torch_dtype="bfloat16", bos_token_id=1, eos_token_id=2)
    shapes = {"model.embed_tokens.weight": [VOCAB, HIDDEN], "model.norm.weight": [HIDDEN], "lm_head.weight": [VOCAB, HIDDEN]}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[prefix + name + ".weight"] = [HIDDEN]
        for name in "qkvo":
            shapes[prefix + f"self_attn.{name}_proj.weight"] = [HIDDEN, HIDDEN]
        for name, shape in (("gate", [FFN, HIDDEN]), ("up", [FFN, HIDDEN]), ("down", [HIDDEN, FFN])):
            shapes[prefix + f"mlp.{name}_proj.weight"] = shape
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    os.mkdir(folder)
    block = bytes(byte & 0xBF for byte in os.urandom(1 << 20))
    with open(os.path.join(folder, "model.safetensors"), "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for at in range(0, end, len(block)):
            turned = at // len(block) * 6  # makes all blocks different
            out.write((block[turned:] + block[:turned])[:end - at])
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
        json.dump(config, out)


def contents(folder):
    """Every file and folder by path, with its bytes; without reports, which contain the time."""
    found = {}
    for where, folders, files in os.walk(folder):
        for name in folders:
            found[os.path.relpath(os.path.join(where, name), folder)] = None
        for name in files:
            if name.endswith(".msckpt_report.json"):
                continue
            found[os.path.relpath(os.path.join(where, name), folder)] = training.read_bytes(os.path.join(where, name))
    return found


def written_bytes(pid):
    for line in training.read(f"/proc/{pid}/io").splitlines():
        if line.startswith("write_bytes: "):
            return int(line.split()[1])
    return 0


class Kills:
    def __init__(self, place):
        self.place, self.work = place, place.path("work")
        self.usual, self.killed, self.whole, self.shares = {}, {name: 0 for name in TARGETS}, 0, []
        self.references = {name: self.reference(name) for name in TARGETS}

    def command(self, name, *flags):
        return ["convert", "--load-dir", "../model", "--save-dir", "out", *TARGETS[name], "--threads", "1", *flags]

    def convert(self, name, *flags):
        return self.place.tool("msckpt", *self.command(name, *flags), cwd=self.work)

    def anew(self, before=None):
        shutil.rmtree(self.work, ignore_errors=True)
        os.mkdir(self.work)
        if before:
            os.makedirs(os.path.dirname(os.path.join(self.work, "out", before)))
            with open(os.path.join(self.work, "out", before), "w", encoding="utf-8") as out:
                out.write("mine")

    def reference(self, name):
        self.anew()
        ran = self.convert(name)
        self.place.expect(ran.exit == 0, f"{name}: converts", ran)
        self.usual[name] = ran.seconds
        return contents(self.work)

    def kill(self, name, way, before):
        """False if the conversion finished before the kill."""
        place = self.place
        self.anew(before)
        clean = contents(self.work)
        whole = {**clean, **self.references[name]}
        process = subprocess.Popen([os.path.join(place.bin, "msckpt"), *self.command(name)], cwd=self.work, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(self.usual[name] * place.random.uniform(0.1, 1.0))
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.005)
        written = written_bytes(process.pid)
        process.kill()
        _, err = process.communicate(timeout=training.LIMIT_S)
        if process.returncode == 0:
            return False
        what = f"{name}, {way}{', ' + before if before else ''}, {written} bytes in"
        place.expect(process.returncode == -9, f"{what}: killed\n{err}")
        self.killed[name] += 1
        now = contents(self.work)
        result = lambda files: {path: data for path, data in files.items() if path == "out" or path.startswith("out/")}
        if result(now) == result(whole):
            self.whole += 1  # killed between the last rename and the exit
            ran = place.tool("msckpt", "gc", "out", cwd=self.work)
            place.expect(ran.exit == 0 and contents(self.work) == whole, f"{what}: whole, and gc removes the rest", ran)
            return True
        torn = [path for path, data in result(now).items() if path not in clean and data != whole.get(path, 0)]
        place.expect(not torn, f"{what}: what lies in the folder is finished: {torn}")
        if way == "gc":
            ran = place.tool("msckpt", "gc", "out", cwd=self.work)
            nothing = ran.exit == 2 and clean == {} and "no such directory" in ran.stderr  # killed before it made anything
            place.expect(ran.exit == 0 or nothing, f"{what}: gc", ran)
            place.expect(contents(self.work) == clean, f"{what}: gc leaves nothing: {sorted(contents(self.work))}")
            return True
        ran = self.convert(name, "--json", *(["--resume"] if way == "resume" else []))
        place.expect(ran.exit == 0, f"{what}: the next one succeeds", ran)
        now = contents(self.work)
        place.expect(now == whole, f"{what}: other bytes or files: {sorted(p for p in now.keys() | whole if now.get(p, 0) != whole.get(p, 0))}")
        if way == "resume" and written > 0:
            self.shares.append(json.loads(ran.stdout)["kept_bytes"] / written)
        return True


def main():
    with training.workplace(needs_mpirun=False) as place:
        make_model(place.path("model"))
        kills = Kills(place)
        names, tried = list(TARGETS), 0
        while sum(kills.killed.values()) < KILLS and tried < 5 * KILLS + 20:
            name, turn = names[tried % len(names)], tried // len(names)
            kills.kill(name, WAYS[turn % len(WAYS)], BEFORE.get(name) if turn % 2 else None)
            tried += 1
        place.expect(sum(kills.killed.values()) == KILLS, f"{kills.killed} were killed in time")
        place.expect(len(kills.shares) > 0, "some were resumed after bytes were written")
        median = statistics.median(kills.shares or [0])
        place.expect(median >= 0.5, f"--resume keeps half of what was written, in the median: {sorted(kills.shares)}")
        print(f"killed {kills.killed}, {kills.whole} after the commit; of {len(kills.shares)} resumed ones {median:.2f} of the bytes were "
              "kept in the median")


if __name__ == "__main__":
    sys.exit(main())
