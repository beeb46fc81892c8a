#!/usr/bin/env python3
"""Makes tests/data/fsdp_ranks with genuine torch: a small model after one AdamW step under FSDP2 on CPU ranks over gloo, of which each
rank saved its own files, as verl's checkpoint manager does; and beside them what the ranks hold together, gathered by torch.

  tests/data/make_fsdp_ranks.py [FOLDER]    needs torch, transformers, safetensors; made with torch 2.13.0

  shard_2/     2 ranks, one axis, sizes that do not divide, with the optimizer's state by name
  hsdp_4/      2 x 2 ranks, replicas of shards
  tp_4/        2 x 2 ranks, FSDP over tensor parallelism, both along the same axis where the layer is cut by rows
  qwen2_2/     2 ranks, a Qwen2 of transformers after three steps, its config.json in huggingface/; the optimizer's state by number,
               as its state_dict() has it, and a scheduler
  qwen2_4/     2 x 2 ranks, the same model with replicas of shards; the optimizer's state by name, in two groups
  expected/    NAME.safetensors of the weights, NAME_exp_avg.safetensors and NAME_exp_avg_sq.safetensors of the moments; of
               the Qwen2 NAME/param, NAME/exp_avg and NAME/exp_avg_sq, folders of transformers
"""
import os
import shutil
import sys

import safetensors.torch
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj = torch.nn.Linear(6, 8)
        self.down_proj = torch.nn.Linear(8, 6, bias=False)

    def forward(self, x):
        return self.down_proj(torch.relu(self.up_proj(x)))


class Model(torch.nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.embed = torch.nn.Embedding(rows, 6)
        self.block = Block()
        self.lora_A = torch.nn.ModuleDict({"default": torch.nn.Linear(6, 3, bias=False)})
        self.register_buffer("inv_freq", torch.arange(3.0))

    def forward(self, tokens):
        x = self.embed(tokens)
        return (self.block(x) @ self.lora_A["default"].weight.t()).square().sum()


def full(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def save(rank, ranks, meeting, kind, root):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    torch.manual_seed(7)
    model = Model(7 if kind == "shard_2" else 8)
    if kind == "shard_2":
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
        by_columns = {model.block.down_proj.weight}
        fully_shard(model, mesh=mesh, shard_placement_fn=lambda p: Shard(1) if p in by_columns else Shard(0))
    elif kind == "hsdp_4":
        fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("ddp", "fsdp")))
    else:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))
        parallelize_module(model.block, mesh["tp"], {"up_proj": ColwiseParallel(), "down_proj": RowwiseParallel()})
        fully_shard(model.block, mesh=mesh["fsdp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if kind == "shard_2":
        model(torch.arange(12).reshape(2, 6) % 7).backward()
        optimizer.step()
    folder = os.path.join(root, kind)
    os.makedirs(folder, exist_ok=True)
    weights, state = get_state_dict(model, optimizer)
    torch.save(weights, os.path.join(folder, f"model_world_size_{ranks}_rank_{rank}.pt"))
    if kind == "shard_2":
        torch.save(state, os.path.join(folder, f"optim_world_size_{ranks}_rank_{rank}.pt"))
        torch.save({"lr_scheduler": {"last_epoch": 1}, "rng": torch.get_rng_state()[:8].clone()},
                   os.path.join(folder, f"extra_state_world_size_{ranks}_rank_{rank}.pt"))
    gathered = {name: full(value).clone().contiguous() for name, value in model.state_dict().items()}
    moments = {}
    if kind == "shard_2":
        for moment in ("exp_avg", "exp_avg_sq"):
            moments[moment] = {name: full(of[moment]).contiguous() for name, of in state["state"].items()}
    if rank == 0:
        expected = os.path.join(root, "expected")
        os.makedirs(expected, exist_ok=True)
        safetensors.torch.save_file(gathered, os.path.join(expected, f"{kind}.safetensors"))
        for moment, tensors in moments.items():
            safetensors.torch.save_file(tensors, os.path.join(expected, f"{kind}_{moment}.safetensors"))
    dist.barrier()
    dist.destroy_process_group()


QWEN2 = {"vocab_size": 19, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 32, "tie_word_embeddings": False}


def save_qwen2(rank, ranks, meeting, kind, root):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    torch.manual_seed(11)
    config = transformers.Qwen2Config(**QWEN2)
    model = transformers.Qwen2ForCausalLM(config)
    by_number = kind == "qwen2_2"
    if by_number:
        fully_shard(model, mesh=init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",)))
        groups = model.parameters()
    else:
        fully_shard(model, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("ddp", "fsdp")))
        groups = [{"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.05},
                  {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.8, 0.97))
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)
    tokens = torch.arange(24).reshape(2, 12) % config.vocab_size
    for _ in range(3):
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    folder = os.path.join(root, kind)
    os.makedirs(folder, exist_ok=True)
    weights, state = get_state_dict(model, optimizer)
    torch.save(model.state_dict() if by_number else weights, os.path.join(folder, f"model_world_size_{ranks}_rank_{rank}.pt"))
    torch.save(optimizer.state_dict() if by_number else state, os.path.join(folder, f"optim_world_size_{ranks}_rank_{rank}.pt"))
    torch.save({"lr_scheduler": scheduler.state_dict(), "rng": torch.get_rng_state()[:8].clone()},
               os.path.join(folder, f"extra_state_world_size_{ranks}_rank_{rank}.pt"))
    weights, state = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        config.architectures = ["Qwen2ForCausalLM"]
        config.save_pretrained(os.path.join(folder, "huggingface"))
        roles = {"param": weights}
        for moment in ("exp_avg", "exp_avg_sq"):
            roles[moment] = {name: of[moment] for name, of in state["state"].items()}
        for role, tensors in roles.items():
            place = os.path.join(root, "expected", kind, role)
            os.makedirs(place)
            config.save_pretrained(place)
            safetensors.torch.save_file({name: value.contiguous() for name, value in tensors.items()},
                                        os.path.join(place, "model.safetensors"), {"format": "pt"})
    dist.barrier()
    dist.destroy_process_group()


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "fsdp_ranks")
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(root)
    for kind in ("shard_2", "hsdp_4", "tp_4"):
        meeting = os.path.join(root, "meeting")
        mp.spawn(save, args=(int(kind[-1]), meeting, kind, root), nprocs=int(kind[-1]))
        os.remove(meeting)
    for kind in ("qwen2_2", "qwen2_4"):
        meeting = os.path.join(root, "meeting")
        mp.spawn(save_qwen2, args=(int(kind[-1]), meeting, kind, root), nprocs=int(kind[-1]))
        if os.path.exists(meeting):
            os.remove(meeting)
    for folder, _, names in os.walk(root):
        for name in names:
            os.chmod(os.path.join(folder, name), 0o644)


if __name__ == "__main__":
    main()
