#!/usr/bin/env python3
"""torch.distributed.checkpoint.load and set_state_dict read the DCP checkpoints that msckpt convert writes, into transformers models
under FSDP2 on CPU ranks and without, with exact values of weights, moments, step and settings (MS_PEERS_PYTHON; skipped without).

Sources: the FSDP checkpoint of tests/data/dcp_fsdp, whose values torch gathered, and transformers folders.
"""
import os
import pathlib
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../bench/peers"))
import peers  # noqa: E402

peers.need("torch", "transformers", "safetensors")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save  # noqa: E402
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

DATA = pathlib.Path(HERE).parent / "data"
FSDP = DATA / "dcp_fsdp"


def load(rank, ranks, meeting, folder):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    torch.manual_seed(11 + rank)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.from_pretrained(folder), dtype=torch.float32)
    if ranks > 1:
        fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.5, 0.6), eps=1e-3, weight_decay=0.5)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": optimizer_state}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model_state, optimizer_state = get_state_dict(model, optimizer, options=options)
    if rank == 0:
        seen = {"param": model_state}
        for moment in ("exp_avg", "exp_avg_sq"):
            seen[moment] = {name: held[moment] for name, held in optimizer_state["state"].items()}
        for role, tensors in seen.items():
            wanted = load_file(FSDP / "expected" / role / "model.safetensors")
            assert wanted.keys() == tensors.keys(), role
            for name, values in wanted.items():
                assert torch.equal(tensors[name], values), f"{role} of {name}"
        assert {held["step"].item() for held in optimizer_state["state"].values()} == {3.0}
        group = optimizer_state["param_groups"][0]
        assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (1e-2, (0.9, 0.999), 1e-8, 0.01), group
    dist.barrier()
    dist.destroy_process_group()


def weights_alone(model, work):
    """Converts a transformers folder, tied or not, and reads the result with PyTorch's own DCP tool and with dcp.load."""
    folder = os.path.join(work, model)
    peers.run("msckpt", "convert", "--load-dir", DATA / model, "--save-dir", folder, "--save-model-type", "dcp",
              "--target-data-parallel-size", 3)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(DATA / model, dtype="auto")
    wanted = loaded.state_dict()
    dcp_to_torch_save(folder, os.path.join(work, "all.pt"))
    seen = torch.load(os.path.join(work, "all.pt"), weights_only=True)["model"]
    behind = {name for name in seen if ".layers.2." in name}  # multi-token prediction layers, which transformers does not create
    assert seen.keys() - behind == wanted.keys(), (seen.keys() ^ wanted.keys())
    state = {"model": {name: torch.zeros_like(seen[name]) for name in wanted}}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    for name, values in wanted.items():
        values = values if seen[name].dtype == values.dtype else values.to(loaded.dtype)  # routers that transformers makes fp32
        assert values.dtype == seen[name].dtype and torch.equal(values, seen[name]), name
        assert torch.equal(values, state["model"][name]), name
    print(f"{model}: PyTorch finds all {len(wanted)} tensors")


def main():
    with tempfile.TemporaryDirectory() as work:
        for written, ranks in ((1, 2), (3, 1), (4, 3)):
            folder = os.path.join(work, f"dcp{written}")
            peers.run("msckpt", "convert", "--load-dir", FSDP, "--hf-cfg-dir", FSDP / "expected/param", "--save-dir",
                      os.path.join(work, f"ms{written}"))
            peers.run("msckpt", "convert", "--load-dir", os.path.join(work, f"ms{written}"), "--save-dir", folder,
                      "--save-model-type", "dcp", "--target-data-parallel-size", written)
            mp.start_processes(load, (ranks, os.path.join(work, f"meeting{written}"), folder), ranks, start_method="fork")
            print(f"written for {written}, loaded on {ranks} ranks{' under FSDP2' if ranks > 1 else ''}: model and AdamW as they were")
        for model in ("hf_llama_tiny", "hf_gpt2_tiny", "hf_gemma2_tiny", "hf_mixtral_tiny", "hf_deepseek_v3_tiny"):
            weights_alone(model, work)


if __name__ == "__main__":
    main()
