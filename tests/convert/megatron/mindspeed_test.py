#!/usr/bin/env python3
"""MindSpeed-LLM's own converter converts trees of msckpt convert back to a Hugging Face folder: the same tensors, bit for bit
(MS_PEERS_PYTHON with PyTorch, MS_MINDSPEED_LLM: a copy of MindSpeed-LLM's sources; skipped without)."""
import argparse
import glob
import os
import pathlib
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../../bench/peers"))
import peers  # noqa: E402

peers.need("torch", "safetensors", "numpy")
if "MS_MINDSPEED_LLM" not in os.environ:
    print("SKIPPED: set MS_MINDSPEED_LLM to a copy of MindSpeed-LLM")
    sys.exit(77)
sys.path.insert(0, os.environ["MS_MINDSPEED_LLM"])
sys.path.insert(0, os.path.join(HERE, "../../data"))
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
from make_mindspeed_llm import DEFAULTS  # noqa: E402
from mindspeed_llm.tasks.checkpoint.convert_mg2hf import Mg2HfConvert  # noqa: E402

DATA = pathlib.Path(HERE).parent.parent / "data"
PLAIN = ["--target-tensor-parallel-size", "2", "--target-pipeline-parallel-size", "2", "--make-vocab-size-divisible-by", "1"]
# Name: the model, our flags, theirs.
CASES = {
    "virtual stages and no-op layers": ("mindspeed_llm/qwen3_virtual_noop/hf",
                                        PLAIN + ["--num-layers-per-virtual-pipeline-stage", "2", "--noop-layers", "2,7"],
                                        dict(model_type_hf="qwen3", noop_layers="2,7", num_layers_per_virtual_pipeline_stage=2)),
    "dualpipe-v": ("mindspeed_llm/qwen3_dualpipev_noop/hf", PLAIN + ["--schedules-method", "dualpipev", "--noop-layers", "1,6"],
                   dict(model_type_hf="qwen3", noop_layers="1,6", schedules_method="dualpipev")),
    "uneven stages": ("mindspeed_llm/qwen3_virtual_noop/hf", PLAIN + ["--num-layer-list", "2,4"], dict(model_type_hf="qwen3")),
}


def main():
    with tempfile.TemporaryDirectory() as work:
        for number, (what, (model, ours, theirs)) in enumerate(CASES.items()):
            root = pathlib.Path(work) / str(number)
            peers.run("msckpt", "convert", "--load-dir", DATA / model, "--save-dir", root / "mg", "--save-model-type", "mg", *ours)
            (root / "mg/release").rename(root / "mg/iter_0000001")  # the only kind that it reads
            (root / "mg/latest_checkpointed_iteration.txt").write_text("1")
            Mg2HfConvert(argparse.Namespace(**dict(DEFAULTS, load_model_type="mg", save_model_type="hf", load_dir=str(root / "mg"),
                                                   save_dir=str(root / "hf"), hf_cfg_dir=str(DATA / model), **theirs))).run()
            seen = {}
            for file in glob.glob(str(root / "hf/*.safetensors")):
                seen.update(safetensors.torch.load_file(file))
            wanted = safetensors.torch.load_file(DATA / model / "model.safetensors")
            assert set(seen) == set(wanted), f"{what}: {set(seen) ^ set(wanted)}"
            for name, tensor in wanted.items():
                assert torch.equal(seen[name], tensor), f"{what}: {name}"
            print(f"{what}: {len(wanted)} tensors come back")


if __name__ == "__main__":
    main()
