#!/usr/bin/env python3
"""Genuine programs resume after their checkpoints were converted by msckpt (MS_PEERS_PYTHON with torch, transformers, megatron-core and
deepspeed; skipped without).

  FSDP2 on 3 CPU ranks -> ours -> dist -> ours -> DCP: settings and moments are bitwise equal, and five further steps of torch give the
  losses of the run that was never converted. megatron-core loads the dist form; its OptimizerParamScheduler returns the schedule's rate
  at steps 5, 50 and 500. DeepSpeed under ZeRO 1 and 3 -> ours -> dist -> ours -> ucp: likewise. Schedulers of torch.optim and of DeepSpeed
survive our format.

Every run has two groups, matrices that decay and vectors that do not. A resumed run starts with other weights and settings.
"""
import json
import math
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "bench/peers"), str(HERE.parent / "data"), str(HERE / "megatron")]
import peers  # noqa: E402

peers.need("torch", "transformers", "megatron.core", "deepspeed")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
import transformers  # noqa: E402
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

RANKS, STEPS, MORE = 3, 5, 5
LR, BETAS, EPS, DECAY = 3e-4, (0.8, 0.97), 1e-7, 0.05
CONFIG = {"vocab_size": 19, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 32, "tie_word_embeddings": False}
# Flags of a schedule, and its rate at an iteration (half a cosine after a linear warm-up).
WARMUP, DECAY_ITERS, MIN_LR, BATCH = 10, 400, 3e-5, 6
SCHEDULE_FLAGS = ["--lr", LR, "--min-lr", MIN_LR, "--lr-decay-style", "cosine", "--lr-decay-iters", DECAY_ITERS,
                  "--lr-warmup-iters", WARMUP, "--global-batch-size", BATCH]


def cosine_rate(step):
    if step <= WARMUP:
        return LR * step / WARMUP
    if step > DECAY_ITERS:
        return MIN_LR
    return MIN_LR + (LR - MIN_LR) * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (DECAY_ITERS - WARMUP)))


def make_model(seed):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(**CONFIG)
    config.architectures = ["LlamaForCausalLM"]
    return transformers.LlamaForCausalLM(config).float()


def two_groups(model, decay):
    groups = [[p for p in model.parameters() if (p.dim() > 1) == matrices] for matrices in (True, False)]
    return [{"params": groups[0], "weight_decay": decay}, {"params": groups[1], "weight_decay": 0.0}]


def tokens_of(step, rank):
    return torch.arange(2 * 12).reshape(2, 12).mul(step * 7 + rank * 3 + 5).add(step + rank).remainder(CONFIG["vocab_size"])


def settings_of(group):
    return {key: group[key] for key in ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay")}


# FSDP2.

def fsdp_rank(seed, lr, betas, eps, decay):
    model = make_model(seed)
    fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)))
    return model, torch.optim.AdamW(two_groups(model, decay), lr=lr, betas=betas, eps=eps)


def fsdp_steps(model, optimizer, rank, first, count):
    losses = []
    for step in range(first, first + count):
        tokens = tokens_of(step, rank)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def full_state(model, optimizer):
    return get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def fsdp_train(rank, meeting, work):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    model, optimizer = fsdp_rank(7, LR, BETAS, EPS, DECAY)
    fsdp_steps(model, optimizer, rank, 0, STEPS)
    for folder, flat in (("fsdp", False), ("fsdp_by_name", True)):
        options = StateDictOptions(flatten_optimizer_state_dict=flat)
        model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
        dcp.save({"model": model_state, "optim": optimizer_state}, checkpoint_id=f"{work}/{folder}")
    model_state, optimizer_state = full_state(model, optimizer)
    if rank == 0:  # before the next step changes it
        torch.save({"model": model_state, "optim": optimizer_state}, f"{work}/fsdp.pt")
    losses = fsdp_steps(model, optimizer, rank, STEPS, MORE)
    torch.save(losses, f"{work}/losses{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def same_state(seen, wanted):
    """Compares every tensor and setting that get_state_dict returns."""
    assert seen["model"].keys() == wanted["model"].keys()
    for name, value in wanted["model"].items():
        assert torch.equal(seen["model"][name], value), name
    assert seen["optim"]["state"].keys() == wanted["optim"]["state"].keys()
    for name, state in wanted["optim"]["state"].items():
        for key, value in state.items():
            assert torch.equal(seen["optim"]["state"][name][key], value), f"{key} of {name}"
    assert len(seen["optim"]["param_groups"]) == len(wanted["optim"]["param_groups"])
    for one, other in zip(seen["optim"]["param_groups"], wanted["optim"]["param_groups"]):
        assert settings_of(one) == settings_of(other), (one, other)
        assert sorted(one["params"]) == sorted(other["params"])


def fsdp_continue(rank, meeting, work, folder, flat):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    model, optimizer = fsdp_rank(11, 1e-2, (0.5, 0.6), 1e-3, 0.5)
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
    state = {"model": model_state, "optim": optimizer_state}
    dcp.load(state, checkpoint_id=f"{work}/{folder}")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"], options=options)
    model_state, optimizer_state = full_state(model, optimizer)
    if rank == 0:
        same_state({"model": model_state, "optim": optimizer_state}, torch.load(f"{work}/fsdp.pt"))
    losses = fsdp_steps(model, optimizer, rank, STEPS, MORE)
    wanted = torch.load(f"{work}/losses{rank}.pt")
    assert losses == wanted, f"rank {rank}: {losses}, and without conversion {wanted}"
    dist.barrier()
    dist.destroy_process_group()


def on_ranks(body, *arguments):
    with tempfile.TemporaryDirectory() as meeting:
        mp.start_processes(body, (f"{meeting}/meeting", *arguments), RANKS, start_method="fork")


def scheduled_run(seed, lr):
    model = make_model(seed)
    optimizer = torch.optim.AdamW(two_groups(model, DECAY), lr=lr, betas=BETAS, eps=EPS)
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20, eta_min=1e-5)


def scheduled_steps(model, optimizer, scheduler, first, count):
    losses = []
    for step in range(first, first + count):
        losses += fsdp_steps(model, optimizer, 0, step, 1)
        scheduler.step()
    return losses


def torch_scheduler_continues(work, config):
    """A torch.optim scheduler saved with the optimizer, in one process."""
    model, optimizer, scheduler = scheduled_run(7, LR)
    scheduled_steps(model, optimizer, scheduler, 0, STEPS)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optim": optimizer_state, "lr_scheduler": scheduler.state_dict()}, checkpoint_id=f"{work}/cosine",
             no_dist=True)
    wanted = scheduled_steps(model, optimizer, scheduler, STEPS, MORE)
    native = convert(f"{work}/cosine", f"{work}/cosine_ms", "ms", "--hf-cfg-dir", config)
    convert(native, f"{work}/cosine_dcp", "dcp", "--hf-cfg-dir", config)
    model, optimizer, scheduler = scheduled_run(11, 1e-2)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": optimizer_state, "lr_scheduler": scheduler.state_dict()}
    dcp.load(state, checkpoint_id=f"{work}/cosine_dcp", no_dist=True)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    scheduler.load_state_dict(state["lr_scheduler"])
    losses = scheduled_steps(model, optimizer, scheduler, STEPS, MORE)
    assert losses == wanted, (losses, wanted)
    print("dcp with a scheduler of torch.optim -> ours -> dcp: torch continues with the losses of the run that was never converted")


# megatron-core.

def megatron_rank(args, folder, override, rate_at, decays):
    import dist_target_test as target_test
    import make_megatron_tree as megatron
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
    metadata = dist_checkpointing.load_content_metadata(
        preloaded_state_dict=dist_checkpointing.load_common_state_dict(str(folder)))
    metadata["dp_cp_group"] = parallel_state.get_data_parallel_group(with_context_parallel=True)
    chunks, _, optimizer = megatron.build_rank(args)
    for inner in optimizer.chained_optimizers:
        target_test.let_pytorch_count(inner)
    sharded = {"model": target_test.bare(args, chunks[0]).sharded_state_dict(metadata=metadata)}
    sharded["optimizer"] = optimizer.sharded_state_dict(dict(sharded), is_loading=True, metadata=metadata)
    state = dist_checkpointing.load(sharded, str(folder), strict="raise_all")
    scheduler = OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=7e-3, min_lr=7e-3, lr_warmup_steps=0, lr_decay_steps=999, lr_decay_style="constant", start_wd=0.3,
        end_wd=0.3, wd_incr_steps=999, wd_incr_style="constant", use_checkpoint_opt_param_scheduler=not override,
        override_opt_param_scheduler=override)
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["opt_param_scheduler"])
    for group in optimizer.param_groups:
        assert (group["betas"], group["eps"]) == (BETAS, EPS), (group["betas"], group["eps"])
    steps = {held["step"].item() for inner in optimizer.chained_optimizers for held in inner.optimizer.state.values()}
    assert steps == {float(STEPS)}, steps
    for step in (5, 50, 500):
        scheduler.step(step * BATCH - scheduler.num_steps)
        for group in optimizer.param_groups:
            assert math.isclose(group["lr"], rate_at(step), rel_tol=1e-12), f"at {step}: {group['lr']}, expected {rate_at(step)}"
            # The schedule's only from the first step on: load_state_dict sets the rates before it restores the decay.
            assert group["weight_decay"] == (decays if group["wd_mult"] else 0.0), group["weight_decay"]


def megatron_loads(folder, what, override=False, rate_at=lambda step: LR, decays=DECAY):
    import make_megatron_tree as megatron
    from megatron.core import dist_checkpointing
    args = dist_checkpointing.load_common_state_dict(str(folder))["args"]
    args.decoder_first_pipeline_num_layers = None
    megatron.run_ranks(args, lambda: megatron_rank(args, folder, override, rate_at, decays), what)
    print(f"{what}: megatron-core loads it, with the rates of its schedule at steps 5, 50 and 500")


# DeepSpeed.

def zero_engine(seed, stage, lr, betas, eps, decay, more=None):
    import deepspeed
    model = make_model(seed)
    optimizer = torch.optim.AdamW(two_groups(model, decay), lr=lr, betas=betas, eps=eps)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config={
        "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, **(more or {})})
    return engine


def zero_steps(engine, rank, first, count):
    losses = []
    for step in range(first, first + count):
        tokens = tokens_of(step, rank)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


WARMUP_LR = {"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1e-5, "warmup_max_lr": 1e-3, "warmup_num_steps": 20}}}


def zero_train(rank, stage, work, name, more):
    import make_deepspeed
    make_deepspeed.init_rank(rank, RANKS)
    engine = zero_engine(7, stage, LR, BETAS, EPS, DECAY, more)
    zero_steps(engine, rank, 0, STEPS)
    engine.save_checkpoint(f"{work}/{name}")
    torch.save(zero_steps(engine, rank, STEPS, MORE), f"{work}/{name}_losses{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def zero_continue(rank, stage, work, name, more):
    import make_deepspeed
    make_deepspeed.init_rank(rank, RANKS)
    # ZeRO 3 gives all groups of a run the settings of one, so settings that differ between groups stay the run's.
    engine = zero_engine(11, stage, 1e-2, (0.5, 0.6), 1e-3, DECAY if stage == 3 else 0.5,
                         {"checkpoint": {"load_universal": True}, **(more or {})})
    engine.load_checkpoint(f"{work}/{name}_ucp")
    if stage == 3:  # DeepSpeed 0.19.8 loads one step counter into all groups, which then counts each step once per group
        for held in engine.optimizer.optimizer.state.values():
            held["step"] = held["step"].clone()
    for group, decay in zip(engine.optimizer.param_groups, (DECAY, 0.0), strict=True):
        seen = (LR if more else group["lr"], tuple(group["betas"]), group["eps"], group["weight_decay"])
        assert seen == (LR, BETAS, EPS, decay), seen
    losses = zero_steps(engine, rank, STEPS, MORE)
    wanted = torch.load(f"{work}/{name}_losses{rank}.pt")
    assert losses == wanted, f"rank {rank}: {losses}, and without conversion {wanted}"
    dist.barrier()
    dist.destroy_process_group()


# Conversions.

def convert(source, target, form, *flags):
    return pathlib.Path(peers.run("msckpt", "convert", "--load-dir", source, "--save-dir", target, "--save-model-type", form, *flags))


def common_of(native):
    return json.loads((native / "manifest.json").read_text())["common"]


def check_groups(common):
    """Compares the manifest's lr, betas, epsilon, decay and step of both groups."""
    groups = common["optimizer"]["groups"]
    assert [group["weight_decay"] for group in groups] == [DECAY, 0.0], groups
    for group in groups:
        assert (group["lr"], group["beta1"], group["beta2"], group["eps"], group["step"]) == (LR, *BETAS, EPS, STEPS), group


def through_ours_and_dist(work, name, config):
    """NAME -> ours -> dist -> ours; returns both of Megatron's, and the last of ours."""
    native = convert(f"{work}/{name}", f"{work}/{name}_ms", "ms", "--hf-cfg-dir", config)
    check_groups(common_of(native))
    form = convert(native, f"{work}/{name}_dist", "dist", "--use-distributed-optimizer", "--target-norm-naming", "local")
    again = convert(form, f"{work}/{name}_again", "ms")
    check_groups(common_of(again))
    scheduled = convert(native, f"{work}/{name}_cosine", "dist", "--use-distributed-optimizer", "--target-norm-naming", "local",
                        *SCHEDULE_FLAGS)
    return form, scheduled, again


def fsdp(work, config):
    on_ranks(fsdp_train, work)
    for name, flat in (("fsdp_by_name", True), ("fsdp", False)):
        form, scheduled, again = through_ours_and_dist(work, name, config)
        for ranks in (1, RANKS):
            convert(again, f"{work}/{name}_dcp{ranks}", "dcp", "--hf-cfg-dir", config, "--target-data-parallel-size", ranks)
            on_ranks(fsdp_continue, work, f"{name}_dcp{ranks}", flat)
        print(f"{name} -> ours -> dist -> ours -> dcp: FSDP2 continues with the losses of the run that was never converted")
    megatron_loads(form, "FSDP2 as dist")
    megatron_loads(form, "FSDP2 as dist, its own schedule", override=True, rate_at=lambda step: 7e-3, decays=0.3)
    megatron_loads(scheduled, "FSDP2 as dist with a schedule from flags", rate_at=cosine_rate)
    torch_scheduler_continues(work, config)


def deepspeed(work, config):
    for stage in (1, 3):
        name = f"zero{stage}"
        mp.spawn(zero_train, args=(stage, work, name, None), nprocs=RANKS)
        form, scheduled, again = through_ours_and_dist(work, name, config)
        convert(again, f"{work}/{name}_ucp", "ucp", "--hf-cfg-dir", config)
        mp.spawn(zero_continue, args=(stage, work, name, None), nprocs=RANKS)
        print(f"ZeRO {stage} -> ours -> dist -> ours -> ucp: DeepSpeed continues with the losses of the run that was never converted")
        megatron_loads(form, f"ZeRO {stage} as dist")
        megatron_loads(scheduled, f"ZeRO {stage} as dist with a schedule from flags", rate_at=cosine_rate)
    mp.spawn(zero_train, args=(1, work, "warmup", WARMUP_LR), nprocs=RANKS)
    native = convert(f"{work}/warmup", f"{work}/warmup_ms", "ms", "--hf-cfg-dir", config)
    convert(native, f"{work}/warmup_ucp", "ucp", "--hf-cfg-dir", config)
    mp.spawn(zero_continue, args=(1, work, "warmup", WARMUP_LR), nprocs=RANKS)
    print("ZeRO 1 with WarmupLR -> ours -> ucp: DeepSpeed continues with the losses of the run that was never converted")


def main():
    """optimizer_resume_test.py [fsdp] [deepspeed]: both if neither is named."""
    parts = {"fsdp": fsdp, "deepspeed": deepspeed}
    with tempfile.TemporaryDirectory() as work:
        config = pathlib.Path(work) / "config"
        config.mkdir()
        make_model(7).config.save_pretrained(config)
        for name in sys.argv[1:] or parts:
            parts[name](work, config)


if __name__ == "__main__":
    main()
