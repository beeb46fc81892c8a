#!/usr/bin/env python3
"""Tiny random models of transformers of ten classes that no table of msckpt has, by name: make(folder, name, seed). Needs torch and
transformers; written for 5.23.0. Run with a folder, it makes them all there.
"""
import pathlib
import sys

import torch
import transformers


def _text(**more):
    return {"vocab_size": 37, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, **more}


def _vision(**more):
    return {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "image_size": 8,
            "patch_size": 4, **more}


MODELS = {
    "opt": lambda: transformers.OPTForCausalLM(transformers.OPTConfig(**_text(ffn_dim=24, word_embed_proj_dim=16, max_position_embeddings=32))),
    "bloom": lambda: transformers.BloomForCausalLM(transformers.BloomConfig(vocab_size=37, hidden_size=16, n_layer=2, n_head=2)),
    "falcon": lambda: transformers.FalconForCausalLM(transformers.FalconConfig(**_text())),
    "mpt": lambda: transformers.MptForCausalLM(transformers.MptConfig(vocab_size=37, d_model=16, n_layers=2, n_heads=2, max_seq_len=32)),
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=37, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2)),
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**_text(intermediate_size=24, max_position_embeddings=32))),
    "whisper": lambda: transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        vocab_size=37, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=24, decoder_ffn_dim=24, num_mel_bins=8, max_source_positions=16, max_target_positions=16,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)),
    "mamba": lambda: transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=37, hidden_size=16, state_size=4, num_hidden_layers=2)),
    "vit": lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**_vision())),
    "clip": lambda: transformers.CLIPModel(transformers.CLIPConfig(
        text_config=_text(intermediate_size=24, max_position_embeddings=16), vision_config=_vision(), projection_dim=8)),
}


def make(folder, name, seed=0):
    """The folder that save_pretrained leaves; returns the model."""
    torch.manual_seed(seed)
    model = MODELS[name]().eval()
    for parameter in model.parameters():  # no tensor of zeros or ones alone: a swap would not show
        parameter.data = torch.randn_like(parameter)
    model.save_pretrained(folder)
    return model


if __name__ == "__main__":
    for name in MODELS:
        make(pathlib.Path(sys.argv[1]) / name, name)
