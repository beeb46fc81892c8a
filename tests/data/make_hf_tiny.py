#!/usr/bin/env python3
"""Makes the tiny Hugging Face folders of tests/data with transformers: random weights in every tensor, norms too.

  make_hf_tiny.py [FOLDER] [NAME ...]     default: the folder of this script, every model

Beside each model lies reference.json: token ids and the mean next-token loss that transformers computes in fp32.
"""
import json
import pathlib
import sys

import torch
import transformers

SHAPE = dict(vocab_size=67, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)


GPT2_SHAPE = dict(vocab_size=67, n_embd=16, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0)
BF16, FP32 = torch.bfloat16, torch.float32
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
}


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
    model = model.to(dtype)
    path = folder / name
    model.save_pretrained(path, max_shard_size=max_shard_size)
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
