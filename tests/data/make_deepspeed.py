#!/usr/bin/env python3
"""Makes tests/data/deepspeed with genuine tools: a small Phi-3 of transformers (few tensors, so few files), trained by DeepSpeed
for three steps on CPU ranks under gloo, and saved by its engine, once for each stage of ZeRO; and what DeepSpeed's own tools read in it.

  tests/data/make_deepspeed.py [FOLDER]    needs deepspeed (installed with DS_BUILD_OPS=0), torch, transformers; made with 0.19.8,
                                           2.13.0 and 5.23.0

CASE/global_step3 and CASE/latest are DeepSpeed's. expected/CASE/param/ holds what zero_to_fp32 makes of it, as a folder of transformers;
exp_avg/ and exp_avg_sq/ what it makes of the moments, which are given to it in place of the fp32 weights. The running engine and
ds_to_universal must say the same, but for zero2: with round_robin_gradients both go by param_slice_mappings, which are then in another
order than the partitions (seen in 0.19.8), where the weights of the model themselves must be the same. CASE_universal is what
ds_to_universal wrote.
"""
import argparse
import os
import pathlib
import shutil
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
import transformers  # noqa: E402
from deepspeed.checkpoint import ds_to_universal  # noqa: E402
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state, zero_to_fp32  # noqa: E402

CONFIG = {"vocab_size": 11, "hidden_size": 4, "intermediate_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2,
          "num_key_value_heads": 1, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FROZEN = "model.layers.0.self_attn.o_proj.weight"
MOMENTS = ("exp_avg", "exp_avg_sq")
# Ranks, tied embeddings, bf16, a frozen weight, what ZeRO is told.
CASES = {
    "zero1": (2, False, True, False, {"stage": 1}),
    "zero2": (3, True, False, False, {"stage": 2, "round_robin_gradients": True, "elastic_checkpoint": True,
                                      "parameter_alignment": True}),
    "zero3": (3, True, True, False, {"stage": 3}),
    "zero3_frozen": (2, False, True, True, {"stage": 3}),
}


def model_config(tied):
    config = transformers.Phi3Config(**CONFIG, tie_word_embeddings=tied)
    config.architectures = ["Phi3ForCausalLM"]
    return config


def save_expected(tensors, tied, place):
    place.mkdir(parents=True)
    model_config(tied).save_pretrained(place)
    safetensors.torch.save_file(tensors, place / "model.safetensors", {"format": "pt"})


def init_rank(rank, ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29537", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    deepspeed.init_distributed("gloo")


def engine_of(model, zero, bf16, more=None):
    groups = [[p for p in model.parameters() if p.requires_grad and (p.dim() > 1) == matrices] for matrices in (True, False)]
    optimizer = torch.optim.AdamW([{"params": groups[0], "weight_decay": 0.1}, {"params": groups[1], "weight_decay": 0.0}], lr=1e-2)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, "bf16": {"enabled": bf16},
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, **(more or {})})
    return engine


def link_state(engine):
    """Of ZeRO 1 and 2, which link the state of all groups when the first has made its step, and so find none of the second."""
    engine.optimizer._hp_optimizer_states_linked = False
    engine.optimizer._lazy_init_hp_params_optimizer_state()


def train(rank, case, root):
    ranks, tied, bf16, frozen, zero = CASES[case]
    init_rank(rank, ranks)
    torch.manual_seed(7)
    model = transformers.Phi3ForCausalLM(model_config(tied))
    if frozen:
        model.get_parameter(FROZEN).requires_grad_(False)
    engine = engine_of(model, zero, bf16)
    tokens = (torch.arange(12 * ranks).reshape(ranks, 12) * 5 % CONFIG["vocab_size"])[rank:rank + 1]
    for _ in range(3):
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()
    engine.save_checkpoint(str(root / case))
    if zero["stage"] < 3:
        link_state(engine)
    trained = {name: p for name, p in engine.module.named_parameters() if p.requires_grad}
    state = {"param": {name: safe_get_full_fp32_param(p).clone() for name, p in trained.items()}}
    for moment in MOMENTS:
        state[moment] = {name: safe_get_full_optimizer_state(p, moment).clone() for name, p in trained.items()}
    if rank == 0:
        torch.save(state, root / "engine.pt")
    dist.barrier()
    dist.destroy_process_group()


def consolidated(folder, role):
    """What zero_to_fp32 makes of the weights, or of a moment in their place."""
    parse = zero_to_fp32.parse_optim_states

    def parse_moments(files, place):
        stage, ranks, _, paddings = parse(files, place)
        groups = []
        for file in files:
            optimizer = torch.load(file, weights_only=False)["optimizer_state_dict"]
            state = optimizer["optimizer_state_dict" if stage == 3 else "base_optimizer_state"]
            state = list(state["state"].values()) if isinstance(state, dict) else state
            groups.append([one[role] for one in state])
        return stage, ranks, groups, paddings

    if role != "param":
        zero_to_fp32.parse_optim_states = parse_moments
    tensors = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(str(folder))
    zero_to_fp32.parse_optim_states = parse
    return tensors


def same(seen, expected):
    assert torch.equal(seen.float().reshape(expected.shape), expected)


def make(case, root):
    ranks, tied, _, frozen, zero = CASES[case]
    folder, universal = root / case, root / f"{case}_universal" / "global_step3"
    mp.spawn(train, args=(case, root), nprocs=ranks)
    for script in folder.glob("zero_to_*.py"):
        script.unlink()
    engine = torch.load(root / "engine.pt")
    (root / "engine.pt").unlink()
    expected = {}
    for role in ("param",) if frozen else ("param", *MOMENTS):
        tensors = consolidated(folder, role)
        if tied:
            same(tensors.pop("lm_head.weight"), tensors["model.embed_tokens.weight"])
        expected[role] = {name: value.float().contiguous().clone() for name, value in tensors.items()}
        save_expected(expected[role], tied, root / "expected" / case / role)
    if zero.get("round_robin_gradients"):
        engine = {"param": torch.load(folder / "global_step3/mp_rank_00_model_states.pt", weights_only=False)["module"]}
    for role, tensors in expected.items():
        for name in engine.get(role, {}).keys() & tensors.keys():
            same(engine[role][name], tensors[name])
    if frozen or zero.get("elastic_checkpoint"):  # which ds_to_universal does not take
        return
    ds_to_universal.main(argparse.Namespace(
        input_folder=str(folder / "global_step3"), output_folder=str(universal), num_extract_workers=1, num_merge_workers=1,
        keep_temp_folder=False, strict=True, inject_missing_state=True))
    for role, tensors in expected.items():
        for name, value in tensors.items():
            state = torch.load(universal / "zero" / name / f"{'fp32' if role == 'param' else role}.pt", weights_only=False)
            same(state["param"] if isinstance(state, dict) else state, value)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent / "deepspeed")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for case in CASES:
        make(case, root)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


if __name__ == "__main__":
    main()
