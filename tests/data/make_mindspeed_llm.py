#!/usr/bin/env python3
"""Makes the trees of tests/data/mindspeed_llm: MindSpeed-LLM's own converter (mindspeed_llm/tasks/checkpoint, which needs
PyTorch alone) of tiny Hugging Face models, with no-op layers, virtual stages and dualpipev.

  make_mindspeed_llm.py MINDSPEED_LLM [FOLDER [CASE ...]]     a copy of its sources; default: mindspeed_llm beside this script

Each case has hf/, the model, and mg/, the tree. That every layer stands where the few lines of `places` say is checked here;
the tests then compare both with what msckpt reads and writes.
"""
import argparse
import itertools
import json
import os
import pathlib
import shutil
import sys

import torch
import transformers

# Case: config, how it is converted (flags of convert_ckpt_v2.py).
COMMON = dict(vocab_size=24, hidden_size=8, intermediate_size=12, num_attention_heads=4, max_position_embeddings=32,
              bos_token_id=0, eos_token_id=1, tie_word_embeddings=False, dtype="bfloat16")
QWEN3 = (transformers.Qwen3Config, dict(COMMON, num_hidden_layers=6, num_key_value_heads=2, head_dim=2))
DEEPSEEK = (transformers.DeepseekV3Config,
            dict(COMMON, num_hidden_layers=3, num_key_value_heads=4, first_k_dense_replace=1, moe_intermediate_size=4,
                 n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, n_group=2, topk_group=1, kv_lora_rank=4,
                 q_lora_rank=6, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=2, num_nextn_predict_layers=1))
CASES = {
    "qwen3_virtual_noop": (QWEN3, dict(model_type_hf="qwen3", target_tensor_parallel_size=2, target_pipeline_parallel_size=2,
                                       num_layers_per_virtual_pipeline_stage=2, noop_layers="7,2")),
    "qwen3_dualpipev_noop": (QWEN3, dict(model_type_hf="qwen3", target_pipeline_parallel_size=2, schedules_method="dualpipev",
                                         noop_layers="1,6")),
    "deepseek_v3_dualpipev": (DEEPSEEK, dict(model_type_hf="deepseek3", target_tensor_parallel_size=2,
                                             target_pipeline_parallel_size=2, target_expert_parallel_size=2, mtp_num_layers=1,
                                             moe_grouped_gemm=True, schedules_method="dualpipev", noop_layers="3")),
    # Four projections up of latent attention.
    "deepseek_v3_mm_split": (DEEPSEEK, dict(model_type_hf="deepseek3", target_tensor_parallel_size=2, mtp_num_layers=1,
                                            moe_grouped_gemm=True, mla_mm_split=True)),
}
DEFAULTS = dict(load_model_type="hf", save_model_type="mg", target_tensor_parallel_size=1, target_pipeline_parallel_size=1,
                target_expert_parallel_size=1, transformer_impl="local", mtp_num_layers=0, lora_target_modules=[],
                **dict.fromkeys(("expert_tensor_parallel_size", "num_layers_per_virtual_pipeline_stage", "noop_layers",
                                 "num_layer_list", "schedules_method", "first_k_dense_replace", "num_layers", "hf_cfg_dir",
                                 "lora_load", "lora_r", "lora_alpha")),
                **dict.fromkeys(("moe_grouped_gemm", "moe_tp_extend_ep", "mla_mm_split", "save_layer_by_layer",
                                 "save_lora_to_hf"), False))


def places(layers, stages, chunks, noops, in_a_v):
    """Of each layer: stage, chunk, index in the chunk."""
    slots = layers + len(noops)
    each = slots // (stages * chunks)
    order = [(stage, chunk) for chunk in range(chunks)
             for stage in (reversed(range(stages)) if in_a_v and chunk == 1 else range(stages))]
    every = [(*place, index) for place in order for index in range(each)]
    return [place for slot, place in enumerate(every) if slot not in noops]


def make_model(kind, options, folder):
    torch.manual_seed(options["num_hidden_layers"])
    config = kind(**options)
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    with torch.no_grad():
        for tensor in itertools.chain(model.parameters(), model.buffers()):
            if tensor.is_floating_point():
                tensor.normal_()
    model.save_pretrained(folder)
    path = folder / "config.json"
    settings = json.loads(path.read_text())
    if kind is transformers.Qwen3Config:  # as in files of the hub, which transformers 5 writes no more
        settings["rope_theta"] = 1000000
        del settings["rope_parameters"]
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    return config


def add_predicting_layer(folder, config):
    """transformers leaves the layer that predicts a further token out: the last one's tensors, and those that only it has."""
    from safetensors.torch import load_file, save_file
    tensors = load_file(folder / "model.safetensors")
    last, extra = config.num_hidden_layers - 1, config.num_hidden_layers
    for name in [n for n in tensors if n.startswith(f"model.layers.{last}.")]:
        made = torch.randn(tensors[name].shape).to(tensors[name].dtype)
        tensors[name.replace(f"layers.{last}.", f"layers.{extra}.")] = made
    hidden, prefix = config.hidden_size, f"model.layers.{extra}."
    for name, shape in {"enorm": (hidden,), "hnorm": (hidden,), "eh_proj": (hidden, 2 * hidden), "shared_head.norm": (hidden,)}.items():
        tensors[f"{prefix}{name}.weight"] = torch.randn(shape).to(torch.bfloat16)
    tensors[prefix + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors[prefix + "shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def check_places(case, options, layers):
    from safetensors.torch import load_file
    hf = load_file(case / "hf/model.safetensors")
    stages, chunks = options["target_pipeline_parallel_size"], 2
    noops = [int(n) for n in (options.get("noop_layers") or "").split(",") if n]
    in_a_v = options.get("schedules_method") == "dualpipev"
    for layer, (stage, chunk, index) in enumerate(places(layers, stages, chunks, noops, in_a_v)):
        rank = sorted((case / "mg/iter_0000001").glob(f"mp_rank_00_{stage:03d}*"))[0]
        norms = torch.load(rank / "model_optim_rng.pt", weights_only=False)[f"model{chunk}"]
        assert torch.equal(norms[f"decoder.layers.{index}.input_layernorm.weight"], hf[f"model.layers.{layer}.input_layernorm.weight"]), \
            (case.name, layer, stage, chunk, index)


def main():
    sys.path.insert(0, str(pathlib.Path(sys.argv[1]).resolve()))
    from mindspeed_llm.tasks.checkpoint.convert_hf2mg import Hf2MgConvert
    out = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else pathlib.Path(__file__).resolve().parent / "mindspeed_llm"
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(out)  # args keep the paths
    for name in sys.argv[3:] or CASES:
        (kind, settings), options = CASES[name]
        case = pathlib.Path(name)
        shutil.rmtree(case, ignore_errors=True)
        config = make_model(kind, settings, case / "hf")
        if getattr(config, "num_nextn_predict_layers", 0):
            add_predicting_layer(case / "hf", config)
        flags = dict(DEFAULTS, **options, load_dir=str(case / "hf"), save_dir=str(case / "mg"))
        converter = Hf2MgConvert(argparse.Namespace(**flags))
        converter.run()
        if options.get("target_pipeline_parallel_size", 1) > 1:
            check_places(case, options, settings["num_hidden_layers"])


if __name__ == "__main__":
    main()
