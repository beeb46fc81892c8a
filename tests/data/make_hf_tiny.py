#!/usr/bin/env python3
"""Makes the tiny Hugging Face folders of tests/data with transformers: random weights in every tensor, norms too.

  make_hf_tiny.py [FOLDER]     default: the folder of this script

Beside each model lies reference.json: token ids and the mean next-token loss that transformers computes in fp32.
"""
import json
import pathlib
import sys

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

SHAPE = dict(vocab_size=67, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)


def make(folder, name, config_class, model_class, dtype, max_shard_size="5GB", **options):
    torch.manual_seed(1234)
    model = model_class(config_class(**SHAPE, **options))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in parameter_name else 0.0, 0.2)
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
    make(folder, "hf_llama_tiny", LlamaConfig, LlamaForCausalLM, torch.bfloat16)
    make(folder, "hf_llama_tiny_sharded", LlamaConfig, LlamaForCausalLM, torch.float32, "8KB", tie_word_embeddings=True,
         rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 50000.0})
    make(folder, "hf_qwen2_tiny", Qwen2Config, Qwen2ForCausalLM, torch.bfloat16)
    make(folder, "hf_qwen3_tiny", Qwen3Config, Qwen3ForCausalLM, torch.bfloat16, head_dim=8)


if __name__ == "__main__":
    main()
