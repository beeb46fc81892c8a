#!/usr/bin/env python3
"""Continues a checkpoint under FSDP on two CPU ranks: loads model and AdamW with torch.distributed.checkpoint, takes three steps.

  continue_fsdp.py MODEL CHECKPOINT     MODEL: a folder with config.json; CHECKPOINT: a folder of DCP
"""
import os
import sys

try:
    import torch
    import transformers
except ImportError as error:
    print(f"SKIPPED: needs {error.name}")
    sys.exit(77)
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

RANKS = 2


def train(rank, meeting, model_folder, checkpoint):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    config = transformers.AutoConfig.from_pretrained(model_folder)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": optimizer_state}
    dcp.load(state, checkpoint_id=checkpoint)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    tokens = (torch.arange(24).reshape(2, 12) * 5 % config.vocab_size)[rank:rank + 1]
    for _ in range(3):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        step = int(next(iter(optimizer.state.values()))["step"])
        if rank == 0:
            print(f"step {step} of AdamW | loss {mean.item() / RANKS:.4f}", flush=True)
    dist.destroy_process_group()


def main():
    meeting = os.path.abspath("meeting")
    mp.start_processes(train, (meeting, sys.argv[1], sys.argv[2]), RANKS, start_method="fork")


if __name__ == "__main__":
    main()
