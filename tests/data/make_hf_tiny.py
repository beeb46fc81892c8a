#!/usr/bin/env python3
"""Makes the tiny Hugging Face folders of tests/data with transformers: random weights in every tensor, norms too.

  make_hf_tiny.py [FOLDER] [NAME ...]     default: the folder of this script, every model

Beside each model lies reference.json: token ids and the mean next-token loss that transformers computes in fp32; of hf_phi3_longrope_tiny
also the most likely continuation of some ids.
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
    "hf_llama_biased_tiny": ("Llama", BF16, dict(attention_bias=True, mlp_bias=True)),
    "hf_llama_tiny_sharded": ("Llama", FP32, dict(tie_word_embeddings=True, rms_norm_eps=1e-5,
                                                  rope_parameters={"rope_type": "default", "rope_theta": 50000.0})),
    "hf_llama3_tiny": ("Llama", FP32, dict(head_dim=16, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32})),
    "hf_yarn_tiny": ("Llama", FP32, dict(head_dim=16, rope_parameters={
        "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16})),
    # Within the original length, and beyond it.
    "hf_longrope_tiny": ("Llama", FP32, dict(head_dim=8, rope_parameters={
        "rope_type": "longrope", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 32,
        "short_factor": [1.0, 1.05, 1.2, 1.5], "long_factor": [1.1, 2.0, 4.5, 9.0]})),
    "hf_phi3_longrope_tiny": ("Phi3", FP32, dict(
        num_attention_heads=2, pad_token_id=0, eos_token_id=0, original_max_position_embeddings=8,
        rope_parameters={"rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0, 1.05, 1.2, 1.5],
                         "long_factor": [1.1, 2.0, 4.5, 9.0]})),
    "hf_mistral_tiny": ("Mistral", FP32, dict(sliding_window=5)),
    "hf_qwen2_tiny": ("Qwen2", BF16, {}),
    "hf_qwen3_tiny": ("Qwen3", BF16, dict(head_dim=8)),
    "hf_qwen3_biased_tiny": ("Qwen3", BF16, dict(head_dim=8, attention_bias=True)),
    "hf_gemma2_tiny": ("Gemma2", FP32, dict(head_dim=8, query_pre_attn_scalar=12, sliding_window=5, pad_token_id=0,
                                            attn_logit_softcapping=3.0, final_logit_softcapping=4.0)),
    "hf_phi3_tiny": ("Phi3", FP32, dict(sliding_window=6, pad_token_id=0, eos_token_id=0)),
    "hf_glm_tiny": ("Glm", FP32, dict(head_dim=8, pad_token_id=0, eos_token_id=0)),
    "hf_glm4_tiny": ("Glm4", FP32, dict(head_dim=8, pad_token_id=0, eos_token_id=0)),
    "hf_gpt2_tiny": ("GPT2", FP32, {}),
    "hf_olmo2_tiny": ("Olmo2", BF16, dict(num_key_value_heads=4, pad_token_id=0, eos_token_id=0)),
    "hf_starcoder2_tiny": ("Starcoder2", BF16, dict(sliding_window=6, pad_token_id=0, bos_token_id=0, eos_token_id=0)),
    "hf_granite_tiny": ("Granite", FP32, dict(embedding_multiplier=3.0, residual_multiplier=0.22, attention_multiplier=0.3,
                                              logits_scaling=2.0)),
    "hf_smollm3_tiny": ("SmolLM3", BF16, dict(no_rope_layers=[1, 0], pad_token_id=0, bos_token_id=0, eos_token_id=0)),
    "hf_ernie4_5_tiny": ("Ernie4_5", BF16, dict(head_dim=8, use_bias=True)),
    "hf_gemma3_text_tiny": ("Gemma3", FP32, dict(head_dim=8, query_pre_attn_scalar=12, sliding_window=5, num_hidden_layers=3, layer_types=[
        "sliding_attention", "sliding_attention", "full_attention"], rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})),
    "hf_gpt_neox_tiny": ("GPTNeoX", FP32, dict(num_attention_heads=2)),
    "hf_internlm2_tiny": ("InternLM2", BF16, {}),
    "hf_nemotron_tiny": ("Nemotron", BF16, dict(head_dim=8)),
    "hf_mixtral_tiny": ("Mixtral", BF16, dict(num_local_experts=4, intermediate_size=8)),
    "hf_qwen2_moe_tiny": ("Qwen2Moe", BF16, dict(EXPERTS, num_experts=4, shared_expert_intermediate_size=12, num_hidden_layers=3,
                                                 mlp_only_layers=[1])),
    "hf_qwen3_moe_tiny": ("Qwen3Moe", BF16, dict(EXPERTS, num_experts=4, head_dim=8, norm_topk_prob=True)),
    "hf_qwen3_moe_tiny_sharded": ("Qwen3Moe", BF16, dict(EXPERTS, num_experts=4, head_dim=8, norm_topk_prob=True)),
    "hf_olmoe_tiny": ("Olmoe", BF16, dict(num_experts=4, num_experts_per_tok=2, intermediate_size=8, pad_token_id=0,
                                          eos_token_id=0)),
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


# Models around a language model. Beside it a vision part of one layer; the options are of the whole's config.
TEXT = dict(SHAPE, pad_token_id=0, bos_token_id=0, eos_token_id=0)
VISION = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=4)
QWEN_VISION = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=16, patch_size=4)
QWEN_TOKENS = dict(image_token_id=63, video_token_id=64, vision_start_token_id=65, vision_end_token_id=66)


def mrope(*sections):
    return dict(rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": list(sections)})


WRAPPERS = {
    "hf_qwen2_5_vl_tiny": ("Qwen2_5_VL", BF16, dict(text_config=dict(TEXT, **mrope(1, 1, 0)), vision_config=dict(
        QWEN_VISION, fullatt_block_indexes=[0]), **QWEN_TOKENS)),
    "hf_qwen2_vl_tiny": ("Qwen2VL", BF16, dict(text_config=dict(TEXT, **mrope(1, 1, 0)), vision_config=dict(
        depth=1, embed_dim=16, hidden_size=16, num_heads=2, mlp_ratio=1, patch_size=4), **QWEN_TOKENS)),
    "hf_qwen3_vl_tiny": ("Qwen3VL", BF16, dict(text_config=dict(TEXT, head_dim=8, **mrope(2, 1, 1)), vision_config=dict(
        QWEN_VISION, num_position_embeddings=16, deepstack_visual_indexes=[0]), **QWEN_TOKENS)),
    "hf_gemma3_tiny": ("Gemma3", FP32, dict(text_config=dict(TEXT, head_dim=8, query_pre_attn_scalar=12, sliding_window=5,
                                                             layer_types=["sliding_attention", "full_attention"]),
                                            vision_config=VISION, mm_tokens_per_image=4, image_token_index=63, boi_token_index=64,
                                            eoi_token_index=65)),
    "hf_llava_tiny": ("Llava", FP32, dict(text_config=dict(TEXT, model_type="llama"), vision_config=dict(
        VISION, model_type="clip_vision_model", projection_dim=16), image_token_index=63)),
    "hf_mistral3_tiny": ("Mistral3", BF16, dict(text_config=dict(TEXT, model_type="mistral", head_dim=4), vision_config=dict(
        VISION, model_type="pixtral", head_dim=8), image_token_index=63)),
    # Under the names that transformers 5 has in memory: model.language_model.*.
    "hf_llava_tiny_memory": ("Llava", FP32, dict(text_config=dict(TEXT, model_type="llama"), vision_config=dict(
        VISION, model_type="clip_vision_model", projection_dim=16), image_token_index=63)),
}
FIRST_SPECIAL_TOKEN = 63


def make_wrapper(folder, name):
    family, dtype, options = WRAPPERS[name]
    torch.manual_seed(1234)
    model_class = getattr(transformers, family + "ForConditionalGeneration")
    model = model_class(getattr(transformers, family + "Config")(**options))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in parameter_name and family != "Gemma3" else 0.0, 0.2)
    path = folder / name
    model.to(dtype).save_pretrained(path, **(dict(save_original_format=False) if name.endswith("_memory") else {}))
    tokens = torch.randint(0, FIRST_SPECIAL_TOKEN, (2, 17))
    loaded = model_class.from_pretrained(path, dtype=torch.float32)
    with torch.no_grad():
        loss = loaded(input_ids=tokens, labels=tokens).loss.item()
    (path / "reference.json").write_text(json.dumps({"tokens": tokens.tolist(), "loss": loss}) + "\n")


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


def as_internlm2(path):
    """What transformers has as a Llama under InternLM 2's names (modeling_internlm2.py of its repositories on the hub): q, k and v in
    one tensor, for each query group its q heads, its k, its v."""
    names = {"self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
             "mlp.down_proj": "feed_forward.w2", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
             "model.embed_tokens": "model.tok_embeddings", "lm_head": "output"}
    llama = safetensors.torch.load_file(path / "model.safetensors")
    heads, groups, hidden = SHAPE["num_attention_heads"], SHAPE["num_key_value_heads"], SHAPE["hidden_size"]
    tensors = {}
    for name, tensor in llama.items():
        if ".k_proj." in name or ".v_proj." in name:
            continue
        if ".q_proj." in name:
            q, k, v = (llama[name.replace("q_proj", part)].view(groups, -1, hidden // heads, hidden) for part in ("q_proj", "k_proj", "v_proj"))
            name = name.replace("self_attn.q_proj", "attention.wqkv")
            tensor = torch.cat([q, k, v], dim=1).reshape(-1, hidden)
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        tensors[name] = tensor.contiguous()
    safetensors.torch.save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    for key in ("attention_bias", "attention_dropout", "head_dim", "mlp_bias", "pretraining_tp"):
        del config[key]
    config.update(architectures=["InternLM2ForCausalLM"], model_type="internlm2", bias=False)
    (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


CONTINUED_IDS, CONTINUATION = 4, 12


def continuation(model, ids):
    """The ids and what follows them. Without a cache, which would hold keys with the frequencies of a shorter text."""
    with torch.no_grad():
        for _ in range(CONTINUATION):
            ids = torch.cat([ids, model(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    return ids[0].tolist()


def longrope_text(model):
    """A text that would be another one with the frequencies of short texts only, and with those of long ones only."""
    rotary = model.model.rotary_emb
    while True:
        ids = torch.randint(0, SHAPE["vocab_size"], (1, CONTINUED_IDS))
        text = continuation(model, ids)
        short, long = rotary.original_inv_freq.clone(), rotary.long_inv_freq.clone()
        others = []
        for inverse_frequencies in (short, long):
            rotary.original_inv_freq, rotary.long_inv_freq = inverse_frequencies, inverse_frequencies
            others.append(continuation(model, ids))
        rotary.original_inv_freq, rotary.long_inv_freq = short, long
        if text not in others:
            return text


def make(folder, name):
    if name in WRAPPERS:
        return make_wrapper(folder, name)
    family, dtype, options = MODELS[name]
    internlm2 = family == "InternLM2"  # which transformers has not; it computes what Llama does
    family = "Llama" if internlm2 else family
    max_shard_size = "8KB" if name.endswith("_sharded") else "5GB"
    config_class = getattr(transformers, {"Gemma3": "Gemma3Text"}.get(family, family) + "Config")
    model_class = getattr(transformers, family + ("LMHeadModel" if family == "GPT2" else "ForCausalLM"))
    torch.manual_seed(1234)
    shape = {key: value for key, value in SHAPE.items() if family != "GPTNeoX" or key != "num_key_value_heads"}
    model = model_class(config_class(**dict(GPT2_SHAPE if family == "GPT2" else shape, **options)))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            is_norm = "norm" in parameter_name or (".ln_" in parameter_name and not parameter_name.endswith("bias"))
            is_norm = is_norm and not parameter_name.endswith("bias")
            parameter.normal_(1.0 if is_norm and family not in ("Gemma2", "Gemma3", "Nemotron") else 0.0, 0.2)
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
    if internlm2:
        as_internlm2(path)
    reference = {"tokens": tokens.tolist(), "loss": loss}
    if name == "hf_phi3_longrope_tiny":
        reference["text"] = longrope_text(loaded)
    (path / "reference.json").write_text(json.dumps(reference) + "\n")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    transformers.logging.disable_progress_bar()
    for name in sys.argv[2:] or [*MODELS, *WRAPPERS]:
        make(folder, name)


if __name__ == "__main__":
    main()
