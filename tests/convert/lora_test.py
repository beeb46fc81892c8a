#!/usr/bin/env python3
"""Adapters that PEFT saved, merged by msckpt convert --lora, compared with PEFT's own merge_and_unload (MS_PEERS_PYTHON; skipped without).

In fp32 the two differ only by the order of the sum over the rank. In bf16 PEFT rounds the product before it adds it, so its result is
within a unit in the last place of a merge in fp32 that is rounded once.
"""
import os
import pathlib
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../bench/peers"))
import peers  # noqa: E402

peers.need("torch", "transformers", "peft", "safetensors")
import peft  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

DATA = pathlib.Path(HERE).parent / "data"
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# Model, PEFT's options.
CASES = {
    "llama": ("hf_llama3_tiny", dict(r=4, lora_alpha=16, target_modules=LINEAR)),
    "rslora of an embedding": ("hf_qwen3_tiny", dict(r=3, lora_alpha=8, use_rslora=True, target_modules=["q_proj", "embed_tokens"])),
    "a module that was trained whole": ("hf_llama3_tiny", dict(r=2, lora_alpha=2, target_modules=["v_proj"], modules_to_save=["lm_head"])),
    "packed weights, an alpha of its own": ("hf_phi3_tiny", dict(r=4, lora_alpha=4, target_modules=["qkv_proj", "gate_up_proj"],
                                                                 alpha_pattern={"gate_up_proj": 12})),
    "attention beside experts": ("hf_mixtral_tiny", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "o_proj"])),
    "latent attention": ("hf_deepseek_v3_tiny", dict(r=2, lora_alpha=4, target_modules=[
        "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"])),
    "Conv1D": ("hf_gpt2_tiny", dict(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)),
}


def products(adapted):
    """For each weight: scale |B| |A|, to which the rounding errors of the sum over the rank are relative."""
    sizes = {}
    for name, module in adapted.base_model.model.named_modules():
        if not isinstance(module, peft.tuners.lora.LoraLayer):
            continue
        embedding = "default" in module.lora_embedding_A
        a = module.lora_embedding_A["default"] if embedding else module.lora_A["default"].weight
        b = module.lora_embedding_B["default"] if embedding else module.lora_B["default"].weight
        size = module.scaling["default"] * (b.detach().float().abs() @ a.detach().float().abs())
        sizes[f"{name}.weight"] = size.T if embedding or getattr(module, "fan_in_fan_out", False) else size
    return sizes


def main():
    with tempfile.TemporaryDirectory() as work:
        for number, (what, (name, options)) in enumerate(CASES.items()):
            for dtype in (torch.float32, torch.bfloat16):
                place = pathlib.Path(work) / f"{number}_{str(dtype)[6:]}"
                torch.manual_seed(number)
                model = transformers.AutoModelForCausalLM.from_pretrained(DATA / name, dtype=dtype)
                model.save_pretrained(place / "base")
                adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **options))
                with torch.no_grad():
                    for key, parameter in adapted.named_parameters():
                        if "lora_" in key or "modules_to_save" in key:
                            parameter.normal_(0, 0.3)
                adapted.save_pretrained(place / "adapter")
                sizes = products(adapted)
                merged = adapted.merge_and_unload().state_dict()
                peers.run("msckpt", "convert", "--load-dir", place / "base", "--save-dir", place / "merged", "--save-model-type", "hf",
                          "--lora", place / "adapter")
                seen = safetensors.torch.load_file(place / "merged/model.safetensors")
                base = safetensors.torch.load_file(place / "base/model.safetensors")
                changed = 0
                for key, value in seen.items():
                    assert value.dtype == (torch.float32 if key.endswith("e_score_correction_bias") else dtype), key
                    if key not in merged:  # experts, which transformers names and packs differently in memory
                        assert (".experts." in key or "_moe." in key) and torch.equal(value, base[key]), key
                        continue
                    wanted = merged[key].float()
                    # bf16: two roundings of PEFT's and one of ours, each of half a unit in the last place; fp32: sums
                    # of r products
                    size = wanted.abs() + sizes.get(key, torch.zeros(1))
                    bound = size * (3 * 2.0 ** -8 if dtype == torch.bfloat16 else 12 * 2.0 ** -24)
                    assert ((value.float() - wanted).abs() <= bound).all(), f"{what}: {key}"
                    changed += not torch.equal(value, base[key])
                assert changed > 0
            print(f"{what}: merged as PEFT merges")


if __name__ == "__main__":
    main()
