#!/usr/bin/env python3
"""Loss and gradients of small random models whose attention differs from Llama's, by transformers in float64, as
tests/data/train/attention_families/ (tests/train/attention_families_test.cpp), with the names and the packing of our checkpoints.

  attention_families.py            # compares the stored files with transformers
  attention_families.py --write    # writes them

Cases: gpt_oss, with sinks, a window in every second layer, biases and YaRN, but a plain gated MLP in place of its experts; gemma3,
with a window in two of three layers, which have angles of their own, and norms of q and k; qwen3_next, with an output gate and a
quarter of the head rotated, in layers of full attention with a plain MLP. A case is CASE.weights.safetensors,
CASE.gradients.safetensors and CASE.json with tokens, loss and the flags of mstrain. Needs torch, transformers and safetensors
(exit 77 without).
"""
import json
import pathlib
import sys

import peers

peers.need("torch", "transformers", "safetensors")

import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "train" / "attention_families"
SAMPLES, SEQ, WINDOW, HEADS, GROUPS, SIZE = 4, 16, 5, 4, 2, 8
SHAPE = {"vocab_size": 67, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS,
         "head_dim": SIZE, "max_position_embeddings": 64, "attn_implementation": "eager"}
FLAGS = {"vocab-size": 67, "hidden-size": 16, "ffn-hidden-size": 24, "num-attention-heads": HEADS, "group-query-attention": True,
         "num-query-groups": GROUPS, "kv-channels": SIZE, "max-position-embeddings": 64, "normalization": "RMSNorm",
         "position-embedding-type": "rope", "disable-bias-linear": True, "hidden-dropout": 0, "attention-dropout": 0,
         "seq-length": SEQ}
YARN = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "original_max_position_embeddings": 16}
# name: family, configuration in addition to SHAPE, flags in addition to FLAGS
CASES = {
    "gpt_oss": ("GptOss", {"num_hidden_layers": 3, "sliding_window": WINDOW, "rope_parameters": YARN},
                {"num-layers": 3, "norm-epsilon": 1e-5, "swiglu": True, "untie-embeddings-and-output-weights": True,
                 "add-qkv-bias": True, "add-dense-bias": True, "softmax-type": "learnable", "window-size": f"{WINDOW - 1},0",
                 "window-attn-skip-freq": "2", "rotary-base": 150000, "rope-scaling-type": "yarn", "rope-scaling-factor": 4,
                 "rope-scaling-original-max-position-embeddings": 16}),
    "gemma3": ("Gemma3", {"num_hidden_layers": 3, "sliding_window": WINDOW, "sliding_window_pattern": 3, "query_pre_attn_scalar": 24,
                          "pad_token_id": 66, "rope_parameters": {
                              "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
                              "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
               {"num-layers": 3, "norm-epsilon": 1e-6, "gelu-tanh": True, "apply-layernorm-1p": True, "qk-layernorm": True,
                "post-norm": True, "input-embeds-norm": True, "query-pre-attn-scalar": 24, "sliding-window": WINDOW,
                "window-attn-skip-freq": "3", "rotary-base": 1000000, "rotary-base-local": 10000, "rope-scaling-type": "linear",
                "rope-scaling-factor": 8}),
    "qwen3_next": ("Qwen3Next", {"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2, "mlp_only_layers": [0, 1],
                                 "partial_rotary_factor": 0.25},
                   {"num-layers": 2, "norm-epsilon": 1e-6, "swiglu": True, "apply-layernorm-1p": True, "qk-layernorm": True,
                    "untie-embeddings-and-output-weights": True, "rotary-percent": 0.25, "attention-output-gate": True}),
}
# Names of ours in a layer, and transformers'.
NORMS = {"self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
         "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight"}
GEMMA_NORMS = {"post_self_attn_layernorm.weight": "post_attention_layernorm.weight",
               "mlp.linear_fc1.layer_norm_weight": "pre_feedforward_layernorm.weight",
               "post_mlp_layernorm.weight": "post_feedforward_layernorm.weight"}
OTHERS = {"self_attention.q_layernorm.weight": "self_attn.q_norm.weight", "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
          "self_attention.core_attention.softmax_offset": "self_attn.sinks",
          "self_attention.linear_proj.weight": "self_attn.o_proj.weight", "self_attention.linear_proj.bias": "self_attn.o_proj.bias",
          "mlp.linear_fc2.weight": "mlp.down_proj.weight"}


class PlainMlp(transformers.models.llama.modeling_llama.LlamaMLP):
    """In place of gpt_oss's experts, which give a score besides."""

    def forward(self, x):
        return super().forward(x), None


def make_model(family, more):
    config = getattr(transformers, "Gemma3TextConfig" if family == "Gemma3" else family + "Config")(**SHAPE, **more)
    model = getattr(transformers, family + "ForCausalLM")(config)
    if family == "GptOss":
        config.mlp_bias = False
        for layer in model.model.layers:
            layer.mlp = PlainMlp(config)
    model = model.double()
    torch.manual_seed(31)
    centred_on_1 = family == "GptOss"
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name
            value = torch.randn(parameter.shape, dtype=torch.float64) * (1.0 if name.endswith("sinks") else 0.2)
            parameter.copy_((value + (1.0 if is_norm and centred_on_1 else 0.0)).float())  # as our side reads it
    return model


def packed_qkv(tensors, place, kind):
    """Of each group its queries, their gates if there are any, its key, its value."""
    q, k, v = (tensors[f"{place}self_attn.{part}_proj.{kind}"] for part in "qkv")
    heads = q.reshape(HEADS, -1, SIZE, *q.shape[1:])  # of a head its query, and its gate
    parts = [*heads.unbind(dim=1), k, v]
    return torch.cat([x.reshape(GROUPS, -1, *q.shape[1:]) for x in parts], dim=1).flatten(0, 1)


def with_our_names(tensors, layers):
    ours = {"embedding.word_embeddings.weight": tensors["model.embed_tokens.weight"],
            "decoder.final_layernorm.weight": tensors["model.norm.weight"]}
    if "lm_head.weight" in tensors:
        ours["output_layer.weight"] = tensors["lm_head.weight"]
    for layer in range(layers):
        theirs, mine = f"model.layers.{layer}.", f"decoder.layers.{layer}."
        is_gemma = f"{theirs}post_feedforward_layernorm.weight" in tensors
        for name, other in (NORMS | (GEMMA_NORMS if is_gemma else {}) | OTHERS).items():
            if theirs + other in tensors:
                ours[mine + name] = tensors[theirs + other]
        for kind in ("weight", "bias"):
            if f"{theirs}self_attn.q_proj.{kind}" in tensors:
                ours[f"{mine}self_attention.linear_qkv.{kind}"] = packed_qkv(tensors, theirs, kind)
        ours[mine + "mlp.linear_fc1.weight"] = torch.cat([tensors[f"{theirs}mlp.{part}_proj.weight"] for part in ("gate", "up")])
    size = sum(x.numel() for x in tensors.values())
    assert sum(x.numel() for x in ours.values()) == size, f"{size} elements of transformers"
    return {name: tensor.float().contiguous() for name, tensor in ours.items()}


def compute(name):
    family, more, flags = CASES[name]
    model = make_model(family, more)
    row = torch.randint(SHAPE["vocab_size"] - 1, (SAMPLES * SEQ + 1,), generator=torch.Generator().manual_seed(7))
    logits = model(input_ids=row[:-1].reshape(SAMPLES, SEQ), use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), row[1:])
    loss.backward()
    parameters = dict(model.named_parameters())
    return ({"flags": FLAGS | flags, "tokens": row.tolist(), "loss": loss.item()},
            with_our_names({key: x.detach() for key, x in parameters.items()}, more["num_hidden_layers"]),
            with_our_names({key: x.grad for key, x in parameters.items()}, more["num_hidden_layers"]))


def main():
    torch.set_num_threads(1)
    for name in CASES:
        told, weights, gradients = compute(name)
        files = [FOLDER / f"{name}.{part}.safetensors" for part in ("weights", "gradients")]
        if sys.argv[1:] == ["--write"]:
            FOLDER.mkdir(parents=True, exist_ok=True)
            (FOLDER / f"{name}.json").write_text(json.dumps(told) + "\n")
            for file, tensors in zip(files, (weights, gradients)):
                save_file(tensors, file)
            continue
        stored = json.loads((FOLDER / f"{name}.json").read_text())
        assert abs(stored.pop("loss") - told.pop("loss")) < 1e-9 and stored == told, f"{name}: another loss or other flags"
        for file, tensors in zip(files, (weights, gradients)):
            for key, tensor in load_file(file).items():
                distance = (tensor - tensors[key]).norm() / tensor.norm()
                assert distance < 1e-6, f"{name}: {key} is {distance} from the stored one"
    print(f"{len(CASES)} models agree")


main()
