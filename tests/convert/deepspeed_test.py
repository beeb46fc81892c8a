#!/usr/bin/env python3
"""DeepSpeed's own engine loads the universal checkpoints that msckpt convert writes, under ZeRO 1, 2 and 3 on other numbers of ranks, and
finds every element of weights and moments in its place (MS_PEERS_PYTHON with deepspeed; skipped without).

The sources are tests/data/deepspeed/zero1, whose values zero_to_fp32 read, and a GPT-2, whose matrices are transposed on the way.
"""
import os
import pathlib
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../bench/peers"), os.path.join(HERE, "../data")]
import peers  # noqa: E402

peers.need("torch", "transformers", "deepspeed")
import deepspeed  # noqa: E402
import make_deepspeed  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
import transformers  # noqa: E402
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state  # noqa: E402

DATA = pathlib.Path(HERE).parent / "data"
GPT2 = DATA / "hf_gpt2_tiny"
# Source, whether it has optimizer state, stage of ZeRO, ranks.
CASES = [("zero1", True, 1, 3), ("zero1", True, 2, 2), ("zero1", True, 3, 2), ("gpt2", False, 1, 2)]


def expected_of(source, role):
    folder = GPT2 if source == "gpt2" else DATA / "deepspeed/expected" / source / role
    return safetensors.torch.load_file(folder / "model.safetensors")


def load(rank, source, with_optimizer, stage, ranks, root):
    make_deepspeed.init_rank(rank, ranks)
    config = transformers.GPT2Config.from_pretrained(GPT2) if source == "gpt2" else make_deepspeed.model_config(False)
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    engine = make_deepspeed.engine_of(model, {"stage": stage}, with_optimizer, {"checkpoint": {"load_universal": True}})
    engine.load_checkpoint(root)
    named = dict(engine.module.named_parameters())
    if stage < 3:
        make_deepspeed.link_state(engine)
    for role in ("param", *make_deepspeed.MOMENTS) if with_optimizer else ("param",):
        for name, value in expected_of(source, role).items():
            seen = safe_get_full_fp32_param(named[name]) if role == "param" else safe_get_full_optimizer_state(named[name], role)
            assert torch.equal(seen.float().reshape(value.shape), value), f"{role} of {name}"
    if with_optimizer:
        assert engine.global_steps == 3 and engine.optimizer.param_groups[0]["betas"] == (0.9, 0.999)


def main():
    with tempfile.TemporaryDirectory() as work:
        for source in ("zero1", "gpt2"):
            flags = ["--hf-cfg-dir", DATA / "deepspeed/expected" / source / "param"] if source != "gpt2" else []
            folder = GPT2 if source == "gpt2" else DATA / "deepspeed" / source
            peers.run("msckpt", "convert", "--load-dir", folder, "--save-dir", f"{work}/{source}", "--save-model-type", "ucp", *flags)
        for source, with_optimizer, stage, ranks in CASES:
            mp.spawn(load, args=(source, with_optimizer, stage, ranks, f"{work}/{source}"), nprocs=ranks)
            print(f"{source} under ZeRO {stage} on {ranks} ranks: DeepSpeed finds all of it")


if __name__ == "__main__":
    main()
