#!/usr/bin/env python3
"""Makes the tiny Hugging Face folders of tests/data with transformers: random weights in every tensor, norms too.

  make_hf_tiny.py [FOLDER] [NAME ...]     default: the folder of this script, every model

Beside each model lies reference.json: token ids and the mean next-token loss that transformers computes in fp32.
"""
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

SHAPE = dict(vocab_size=67, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)


GPT2_SHAPE = dict(vocab_size=67, n_embd=16, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0)
BF16, FP32 = torch.bfloat16, torch.float32
EXPERTS = dict(moe_intermediate_size=8, num_experts_per_tok=2)
LATENT = dict(kv_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6, num_key_value_heads=4)
# name: family, dtype, what differs from the shape
MODELS = {
    "hf_llama_tiny": ("Llama", BF16, {}),
    "hf_llama_tiny_sharded": ("Llama", FP32, dict(tie_word_embeddings=True, rms_norm_eps=1e-5,
                                                  rope_parameters={"rope_type": "default", "rope_theta": 50000.0})),
    "hf_llama3_tiny": ("Llama", FP32, dict(head_dim=16, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32})),
    "hf_yarn_tiny": ("Llama", FP32, dict(head_dim=16, rope_parameters={
        "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16})),
    "hf_mistral_tiny": ("Mistral", FP32, dict(sliding_window=5)),
    "hf_qwen2_tiny": ("Qwen2", BF16, {}),
    "hf_qwen3_tiny": ("Qwen3", BF16, dict(head_dim=8)),
    "hf_gemma2_tiny": ("Gemma2", FP32, dict(head_dim=8, query_pre_attn_scalar=12, sliding_window=5, pad_token_id=0,
                                            attn_logit_softcapping=3.0, final_logit_softcapping=4.0)),
    "hf_phi3_tiny": ("Phi3", FP32, dict(sliding_window=6, pad_token_id=0, eos_token_id=0)),
    "hf_glm_tiny": ("Glm", FP32, dict(head_dim=8, pad_token_id=0, eos_token_id=0)),
    "hf_glm4_tiny": ("Glm4", FP32, dict(head_dim=8, pad_token_id=0, eos_token_id=0)),
    "hf_gpt2_tiny": ("GPT2", FP32, {}),
    "hf_mixtral_tiny": ("Mixtral", BF16, dict(num_local_experts=4, intermediate_size=8)),
    "hf_qwen2_moe_tiny": ("Qwen2Moe", BF16, dict(EXPERTS, num_experts=4, shared_expert_intermediate_size=12, num_hidden_layers=3,
                                                 mlp_only_layers=[1])),
    "hf_qwen3_moe_tiny": ("Qwen3Moe", BF16, dict(EXPERTS, num_experts=4, head_dim=8, norm_topk_prob=True)),
    "hf_qwen3_moe_tiny_sharded": ("Qwen3Moe", BF16, dict(EXPERTS, num_experts=4, head_dim=8, norm_topk_prob=True)),
    "hf_glm4_moe_tiny": ("Glm4Moe", BF16, dict(EXPERTS, n_routed_experts=4, head_dim=8, use_qk_norm=True, attention_bias=True)),
    "hf_deepseek_v2_tiny": ("DeepseekV2", BF16, dict(EXPERTS, **LATENT, n_routed_experts=4, n_shared_experts=2, q_lora_rank=None,
                                                     first_k_dense_replace=1)),
    "hf_deepseek_v3_tiny": ("DeepseekV3", BF16, dict(EXPERTS, **LATENT, n_routed_experts=4, n_group=2, topk_group=1, q_lora_rank=20,
                                                     first_k_dense_replace=1)),
    # As transformers holds experts in memory: one tensor of them all.
    "hf_deepseek_v3_tiny_packed": ("DeepseekV3", BF16, dict(EXPERTS, **LATENT, n_routed_experts=4, n_group=2, topk_group=1,
                                                            q_lora_rank=20, first_k_dense_replace=1)),
    "hf_mixtral_tiny_packed": ("Mixtral", BF16, dict(num_local_experts=4, intermediate_size=8)),
}


def add_next_token_layer(path):
    """What DeepSeek's own files have behind the model and transformers leaves out: a layer that predicts a further token."""
    tensors = safetensors.torch.load_file(path / "model.safetensors")
    layers = SHAPE["num_hidden_layers"]
    last, new = f"model.layers.{layers - 1}.", f"model.layers.{layers}."
    for name, tensor in list(tensors.items()):
        if name.startswith(last):
            tensors[new + name[len(last):]] = torch.randn(tensor.shape).to(tensor.dtype)
    hidden = SHAPE["hidden_size"]
    for name, shape in (("enorm", [hidden]), ("hnorm", [hidden]), ("shared_head.norm", [hidden]), ("eh_proj", [hidden, 2 * hidden])):
        tensors[f"{new}{name}.weight"] = torch.randn(shape).to(BF16)
    tensors[new + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors[new + "shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    safetensors.torch.save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


def make(folder, name):
    family, dtype, options = MODELS[name]
    max_shard_size = "8KB" if name.endswith("_sharded") else "5GB"
    config_class = getattr(transformers, family + "Config")
    model_class = getattr(transformers, family + ("LMHeadModel" if family == "GPT2" else "ForCausalLM"))
    torch.manual_seed(1234)
    model = model_class(config_class(**dict(GPT2_SHAPE if family == "GPT2" else SHAPE, **options)))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            is_norm = "norm" in parameter_name or (".ln_" in parameter_name and not parameter_name.endswith("bias"))
            parameter.normal_(1.0 if is_norm and family != "Gemma2" else 0.0, 0.2)
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith("e_score_correction_bias"):
                buffer.normal_(0.0, 0.2)
    biases = {n: b.clone() for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")}
    model = model.to(dtype)
    for buffer_name, bias in biases.items():  # transformers loads them as fp32, whatever the model is
        model.get_submodule(buffer_name.rpartition(".")[0]).e_score_correction_bias = bias
    path = folder / name
    packed = name.endswith("_packed")
    model.save_pretrained(path, max_shard_size=max_shard_size, **(dict(save_original_format=False) if packed else {}))
    if family == "DeepseekV3" and not packed:
        add_next_token_layer(path)
    tokens = torch.randint(0, SHAPE["vocab_size"], (2, 17))
    loaded = model_class.from_pretrained(path, dtype=torch.float32)  # not model.float(): its rotary table went through dtype
    with torch.no_grad():
        loss = loaded(input_ids=tokens, labels=tokens).loss.item()
    (path / "reference.json").write_text(json.dumps({"tokens": tokens.tolist(), "loss": loss}) + "\n")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    transformers.logging.disable_progress_bar()
    for name in sys.argv[2:] or MODELS:
        make(folder, name)


if __name__ == "__main__":
    main()
