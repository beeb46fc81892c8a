#!/usr/bin/env python3
"""A DCP checkpoint of a model of an unknown family, rewritten for another number of ranks by msckpt convert --as-named, gives torch's
own loading code the same optimizer: groups with their settings, moments and steps, and the scheduler and counters saved with it
(MS_PEERS_PYTHON; skipped without). By position and, with flatten_optimizer_state_dict, by name; also with a rate in a tensor."""
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = os.path.join(HERE, "../../bench/peers")  # not this folder, whose torch/ would be imported as the package
import peers  # noqa: E402

peers.need("torch")
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict  # noqa: E402


def make(seed, lr, decay):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.LayerNorm(10), torch.nn.Linear(10, 4))
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}], lr=lr,
                                  betas=(0.8, 0.97), eps=1e-6)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    for _ in range(3):
        model(torch.randn(5, 6)).square().mean().backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return model, optimizer, scheduler


def state_of(model, optimizer, scheduler, options):
    weights, state = get_state_dict(model, optimizer, options=options)
    return {"model": weights, "optim": state, "scheduler": scheduler.state_dict(), "epoch": 7, "rng": torch.get_rng_state(),
            "names": ["a", {"b": torch.arange(3)}]}


def settings(optimizer):
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


def same(a, b):
    if torch.is_tensor(a) or torch.is_tensor(b):
        return torch.equal(torch.as_tensor(a), torch.as_tensor(b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


def check(work, name, flat, tensor_rate):
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    trained = make(1, torch.tensor(3e-4) if tensor_rate else 3e-4, 0.05)
    saved = state_of(*trained, options)
    source, target = work / f"{name}_source", work / f"{name}_target"
    dcp.save(saved, checkpoint_id=source, no_dist=True)
    subprocess.run([peers.binary("msckpt"), "convert", "--load-dir", source, "--save-dir", target, "--to", "dcp", "--as-named", "--dp", "3", "--prove"],
                   check=True, stdout=subprocess.DEVNULL)
    assert len(list(target.glob("*.distcp"))) == 3
    model, optimizer, scheduler = make(2, torch.tensor(1.0) if tensor_rate else 1.0, 0.5)
    loaded = state_of(model, optimizer, scheduler, options)
    loaded.update(epoch=0, rng=torch.zeros_like(saved["rng"]), names=["", {"b": torch.zeros(3, dtype=torch.int64)}])
    dcp.load(loaded, checkpoint_id=target, no_dist=True)
    assert same(loaded, saved), f"{name}: what dcp.load reads is not what was saved"
    set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optim"], options=options)
    scheduler.load_state_dict(loaded["scheduler"])
    assert same(settings(optimizer), settings(trained[1])), f"{name}: {settings(optimizer)} instead of {settings(trained[1])}"
    for mine, theirs in zip(model.parameters(), trained[0].parameters()):
        assert same(dict(optimizer.state[mine]), dict(trained[1].state[theirs])), f"{name}: moments"
    keys = set(dcp.FileSystemReader(source).read_metadata().state_dict_metadata)
    assert keys == set(dcp.FileSystemReader(target).read_metadata().state_dict_metadata), f"{name}: keys"
    print(f"{name}: {len(keys)} entries come back")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name, flat, tensor_rate in (("by position", False, False), ("by name", True, False), ("rate in a tensor", False, True)):
            check(pathlib.Path(folder), name.replace(" ", "_"), flat, tensor_rate)


if __name__ == "__main__":
    main()
