#!/usr/bin/env python3
"""msckpt verify --against --prove finds twelve faults that genuine code of torch and safetensors plants in the written files of
each format, and names tensor, place and kind; files that these rewrite without a fault pass (MS_PEERS_PYTHON; skipped
without). Formats and models are in prove_faults.py; the sources are FSDP checkpoints of a small Qwen3 with AdamW's moments, dense,
tied and with experts.

  prove_test.py [FORMAT ...]
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = os.path.join(HERE, "../../bench/peers")  # not this folder, whose torch/ would be imported as the package
import peers  # noqa: E402

peers.need("torch", "safetensors")
import importlib.util  # noqa: E402

import torch  # noqa: E402

spec = importlib.util.spec_from_file_location("prove_faults", os.path.join(HERE, "prove_faults.py"))
faults = importlib.util.module_from_spec(spec)
spec.loader.exec_module(faults)

FORMATS = {"hf": faults.HuggingFace, "hf-bin": faults.HuggingFaceBin, "mg": faults.MegatronTree, "dist": faults.MegatronDist,
           "dcp": faults.Dcp, "ucp": faults.Universal}
DIFFERS, REFUSED = 10, 3
failures = []


def msckpt(*words):
    ran = subprocess.run([peers.binary("msckpt"), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    return ran.returncode, ran.stderr


class Planting:
    """One format: a source, msckpt's conversion of it, and copies with one fault each."""

    def __init__(self, work, name):
        self.work, self.name, self.form = work / name, name, FORMATS[name]
        self.work.mkdir()
        self.sources, self.made = {}, {}
        self.found = 0

    def source(self, kind):
        if kind not in self.sources:
            self.sources[kind] = faults.make_source(self.work / f"source_{kind}", experts=kind == "experts", tied=kind == "tied")
        return self.sources[kind]

    def converted(self, kind, *flags):
        key = (kind, *flags)
        if key not in self.made:
            source, out = self.source(kind), self.work / f"made{len(self.made)}"
            extra = getattr(self.form, "expert_flags" if kind == "experts" else "dense_flags", [])
            if self.name == "hf-bin":  # keeps the names of its source
                code, said = msckpt("convert", "--load-dir", source, "--save-dir", f"{out}_hf", "--to", "hf", *flags)
                assert code == 0, said
                source, flags = f"{out}_hf", []
            code, said = msckpt("convert", "--load-dir", source, "--save-dir", out, "--prove", *self.form.flags, *extra, *flags)
            if code != 0:
                failures.append(f"{self.name}: conversion of {kind}")
                print(f"FAILED: {self.name}: conversion of {kind}: {said}")
            self.made[key] = out
        return self.made[key]

    def expect(self, what, change, code, *words, kind="dense", flags=("--drop-optimizer",), written=False):
        copy = self.work / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.converted(kind, *flags), copy)
        files = self.form(copy)
        change(files)
        if not written:  # by the change itself
            files.write()
        seen, said = msckpt("verify", copy, "--against", self.source(kind), "--prove")
        errors = "\n".join(line for line in said.splitlines() if line.startswith("E "))
        place = code == 0 or str(copy) in errors
        if seen == code and place and all(word in errors for word in words) and bool(errors) == (code != 0):
            self.found += code != 0
            return
        failures.append(f"{self.name}: {what}")
        print(f"FAILED: {self.name}: {what}: exit {seen}, wanted {code} and {words}\n{said}")

    def run(self):
        fc1, fc2 = "decoder.layers.1.mlp.linear_fc1.weight", "mlp.experts.local_experts.3.linear_fc2.weight"
        qkv, proj = "decoder.layers.1.self_attention.linear_qkv.weight", "decoder.layers.1.self_attention.linear_proj.weight"
        optimizer = () if self.form.has_moments else ("--drop-optimizer",)
        experts = self.name != "ucp"
        # Rewritten, in other orders and shards.
        for kind in ("dense", "tied", "experts") if experts else ("dense", "tied"):
            self.expect(f"no fault, {kind}", lambda files: None, 0, kind=kind, flags=optimizer)
        # 1: dropped. If the format's reader refuses incomplete files, its error names the tensor.
        missing = {"mg": "linear_proj.weight is missing", "dist": "linear_proj.weight, which the model in args has"}
        self.expect("dropped", lambda files: files.drop(1), REFUSED, "refused",
                    missing.get(self.name, "model.layers.1.self_attn.o_proj.weight is missing"))
        # 2: written twice.
        twice = {"hf": (DIFFERS, "o_proj.weight", "written twice"), "hf-bin": (DIFFERS, "o_proj.weight", "written twice"),
                 "mg": (REFUSED, "embedding.word_embeddings.weight exists, but belongs to another stage"),
                 "dist": (REFUSED, "linear_proj.weight", "overlap"), "dcp": (REFUSED, "two tensors are", "o_proj.weight"),
                 "ucp": (REFUSED, "o_proj.weight")}[self.name]
        self.expect("written twice", lambda files: files.write_twice(1), *twice, written=True)
        if hasattr(self.form, "write_chunk_twice"):
            self.expect("chunk written twice", lambda files: files.write_chunk_twice(1), REFUSED, "they overlap",
                        "o_proj.weight" if self.name == "dcp" else "linear_proj.weight", written=True)
        if hasattr(self.form, "write_layer_twice"):
            self.expect("layer written twice", lambda files: files.write_layer_twice(), REFUSED, "layers", written=True)
        # 3: never written. 5: two experts swapped.
        if experts:
            self.expect("uninitialised", lambda files: files.fill_expert(2, 3, 0), DIFFERS, f"decoder.layers.2.{fc2}",
                        "uninitialised: all zero", kind="experts")
            self.expect("swapped experts", lambda files: files.swap_experts(2, 0, 3), DIFFERS, f"decoder.layers.2.{fc2}", "swapped",
                        "local_experts.0.linear_fc2", kind="experts")
        self.expect("uninitialised projection", lambda files: files.set_projection(1, torch.zeros(32, 32)), DIFFERS, proj,
                    "uninitialised: all zero")
        # 4: transposed.
        self.expect("transposed", lambda files: files.set_projection(1, files.projection(1).clone().T.contiguous()), DIFFERS, proj,
                    "transposed")
        # 6: stale moments.
        if self.form.has_moments:
            self.expect("stale moments", lambda files: files.age_moment(1), DIFFERS, "self_attention.linear_proj.weight (exp_avg)", "stale",
                        flags=())
        # 7: a tied head that differs from the embedding.
        head = {"mg": "is not bitwise equal to", "dist": "output_layer.weight"}.get(self.name, "lm_head.weight differs from")
        self.expect("tied head", lambda files: files.add_head(torch.randn(67, 32)), REFUSED, "refused", head,
                    kind="tied")
        # 8 to 10, 12: rows shifted, gate and up, q and k, a layer twice.
        self.expect("shifted shard", lambda files: files.shift_embedding(), DIFFERS, "embedding.word_embeddings.weight", "shifted: rows")
        self.expect("gate and up", lambda files: files.swap_gate_up(1), DIFFERS, fc1, "swapped: gate and up")
        self.expect("q and k", lambda files: files.swap_q_k(1), DIFFERS, qkv, "swapped: q and k")
        self.expect("duplicated layer", lambda files: files.duplicate_layer(1, 2), DIFFERS, qkv.replace("1", "2"), "duplicated",
                    "layer 2 holds the values of layer 1: 8 tensors")
        # 11: truncated to bf16 instead of rounded; a rounded one passes.
        half = ("--drop-optimizer", "--dtype", "bf16")
        self.expect("rounded to bf16", lambda files: None, 0, flags=half)
        if self.name == "ucp":  # its weights are stored twice, in bf16 and in fp32
            def change(files):
                files.projection(1)[16, 16] = 1
            self.expect("fp32 copy changed", change, DIFFERS, f"{proj} (master)", "master of model.layers.1.self_attn.o_proj.weight", flags=half)
        exact = self.form(self.converted("dense", "--drop-optimizer")).projection(1).clone()
        cut = (exact.view(torch.int32) & -65536).view(torch.float32).to(torch.bfloat16)
        seen = (REFUSED, "o_proj.weight", "differs from its rounded fp32 values") if self.name == "ucp" else (DIFFERS, proj, "truncated")
        self.expect("truncated bf16", lambda files: files.set_projection(1, cut), *seen, flags=half)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or FORMATS:
            began = time.monotonic()
            planting = Planting(pathlib.Path(folder), name)
            planting.run()
            print(f"{name}: {planting.found} faults found, {time.monotonic() - began:.0f} s")
    print(f"prove_test.py: {len(failures)} failed" + "".join(f"\n  {what}" for what in failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
