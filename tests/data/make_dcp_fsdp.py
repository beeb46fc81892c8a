#!/usr/bin/env python3
"""Makes tests/data/dcp_fsdp with genuine tools: a small Qwen2 of transformers, after three AdamW steps under FSDP2 on two CPU ranks
(some matrices cut by columns), saved by torch.distributed.checkpoint; and what it holds, gathered by torch, as folders of transformers.

  tests/data/make_dcp_fsdp.py [FOLDER]    needs torch and transformers; made with 2.13.0 and 5.23.0

expected/param/ is the model as save_pretrained leaves it; expected/exp_avg/ and exp_avg_sq/ hold the moments under the weights' names.
"""
import os
import shutil
import sys

import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
import transformers
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

RANKS = 2
CONFIG = {"vocab_size": 19, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 32, "tie_word_embeddings": False}


def save(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.manual_seed(7)
    config = transformers.Qwen2Config(**CONFIG)
    model = transformers.Qwen2ForCausalLM(config)
    by_columns = {model.model.layers[0].self_attn.o_proj.weight, model.model.layers[0].mlp.down_proj.weight}
    fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)),
                shard_placement_fn=lambda parameter: Shard(1) if parameter in by_columns else Shard(0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.arange(24).reshape(2, 12) % config.vocab_size
    for _ in range(3):
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optim": optimizer_state, "epoch": 2}, checkpoint_id=folder)

    model_state, optimizer_state = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        roles = {"param": model_state}
        for moment in ("exp_avg", "exp_avg_sq"):
            roles[moment] = {name: state[moment] for name, state in optimizer_state["state"].items()}
        config.architectures = ["Qwen2ForCausalLM"]
        for role, tensors in roles.items():
            place = os.path.join(folder, "expected", role)
            os.makedirs(place)
            config.save_pretrained(place)
            path = os.path.join(place, "model.safetensors")
            safetensors.torch.save_file({name: value.contiguous() for name, value in tensors.items()}, path, {"format": "pt"})
            os.chmod(path, 0o644)
    dist.barrier()
    dist.destroy_process_group()


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "dcp_fsdp")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    mp.spawn(save, args=(folder,), nprocs=RANKS)


if __name__ == "__main__":
    main()
