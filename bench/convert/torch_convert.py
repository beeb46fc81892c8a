#!/usr/bin/env python3
"""The converters that convert_speed.py compares with: one with transformers and torch, and safetensors' own writing.

  torch_convert.py convert SOURCE TARGET TP PP     a Llama of Hugging Face into a Megatron tree, as converters usually do it:
      the model by from_pretrained in bf16, then the dictionary of each rank by torch.save; every file is fsynced
  torch_convert.py save SOURCE TARGET              the same tensors by safetensors' save_file, file by file, fsynced
  torch_convert.py same FILE FILE                  whether two rank files hold the same tensors, bit for bit

convert and save print the seconds of their work, without imports. Exit 77 if the packages are missing.
"""
import argparse
import os
import pathlib
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
import peers  # noqa: E402

peers.need("torch", "transformers", "safetensors")
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402


def fsync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def rank_tensors(state, config, tp, tp_rank, layers, first, last):
    """The tensors of one rank, under megatron-core's names."""
    head = config.hidden_size // config.num_attention_heads
    groups, hidden = config.num_key_value_heads, config.hidden_size

    def rows(weight):
        return weight.chunk(tp, dim=0)[tp_rank].clone()

    def columns(weight):
        return weight.chunk(tp, dim=1)[tp_rank].contiguous()

    held = {}
    if first:
        held["embedding.word_embeddings.weight"] = rows(state["model.embed_tokens.weight"])
    for local, layer in enumerate(layers):
        of, to = f"model.layers.{layer}.", f"decoder.layers.{local}."
        q, k, v = (state[f"{of}self_attn.{name}_proj.weight"].view(groups, -1, hidden) for name in "qkv")
        assert k.shape[1] == head
        held[to + "input_layernorm.weight"] = state[of + "input_layernorm.weight"]
        held[to + "self_attention.linear_proj.weight"] = columns(state[of + "self_attn.o_proj.weight"])
        held[to + "self_attention.linear_qkv.weight"] = rows(torch.cat([q, k, v], dim=1).view(-1, hidden))
        held[to + "pre_mlp_layernorm.weight"] = state[of + "post_attention_layernorm.weight"]
        held[to + "mlp.linear_fc1.weight"] = torch.cat(
            [state[f"{of}mlp.{name}_proj.weight"].chunk(tp, dim=0)[tp_rank] for name in ("gate", "up")])
        held[to + "mlp.linear_fc2.weight"] = columns(state[of + "mlp.down_proj.weight"])
    if last:
        held["decoder.final_layernorm.weight"] = state["model.norm.weight"]
        held["output_layer.weight"] = rows(state["lm_head.weight"])
    return held


def convert(source, target, tp, pp):
    model = transformers.LlamaForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    state, config = model.state_dict(), model.config
    layers = config.num_hidden_layers // pp
    args = argparse.Namespace(tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, bf16=True,
                              num_layers=config.num_hidden_layers, hidden_size=config.hidden_size)
    for pp_rank in range(pp):
        for tp_rank in range(tp):
            held = rank_tensors(state, config, tp, tp_rank, range(pp_rank * layers, (pp_rank + 1) * layers), pp_rank == 0,
                                pp_rank + 1 == pp)
            folder = target / "release" / f"mp_rank_{tp_rank:02d}_{pp_rank:03d}"
            folder.mkdir(parents=True)
            path = folder / "model_optim_rng.pt"
            torch.save({"args": args, "checkpoint_version": 3.0, "iteration": 0, "model": held}, path)
            fsync(path)
    (target / "latest_checkpointed_iteration.txt").write_text("release")


def save(source, target):
    target.mkdir()
    for path in sorted(source.glob("*.safetensors")):
        safetensors.torch.save_file(safetensors.torch.load_file(path), target / path.name, {"format": "pt"})
        fsync(target / path.name)


def same(ours, other):
    torch.serialization.add_safe_globals([argparse.Namespace])
    one, two = ({name: tensor for name, tensor in torch.load(path, weights_only=True, mmap=True)["model"].items()
                 if isinstance(tensor, torch.Tensor) and not name.endswith("_extra_state")} for path in (ours, other))
    assert one.keys() == two.keys(), f"other tensors: {sorted(one.keys() ^ two.keys())[:4]}"
    for name, tensor in one.items():
        assert tensor.dtype == two[name].dtype == torch.bfloat16, f"{name}: other type"
        assert torch.equal(tensor.view(torch.int16), two[name].view(torch.int16)), f"{name}: other values"
    print(f"{len(one)} tensors")


def main():
    verb, first, second, *layout = sys.argv[1:]
    first, second = pathlib.Path(first), pathlib.Path(second)
    begin = time.perf_counter()
    if verb == "same":
        return same(first, second)
    if verb == "convert":
        convert(first, second, *map(int, layout))
    else:
        save(first, second)
    print(time.perf_counter() - begin)


if __name__ == "__main__":
    main()
