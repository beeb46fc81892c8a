#!/usr/bin/env python3
"""Compares megatron-core's own output gate (attention_output_gate), on a CPU, with the golden of transformers' qwen3_next
(attention_families.py): the same loss and gradients from the same packed linear_qkv. Norms of megatron-core's local layers are
centred on 1, not on 0 as the golden's. Needs megatron-core, torch and safetensors (exit 77 without).
"""
import contextlib
import json
import os
import pathlib
import sys
import warnings

import peers

peers.need("torch", "megatron", "safetensors")
warnings.simplefilter("ignore")

import torch  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.tensor_parallel import get_cuda_rng_tracker  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "train" / "attention_families"
BAR = 1e-5  # its softmax and norms are fp32 in places, and so is the golden


def make_model(flags):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    torch.cuda.current_device = lambda: "cpu"
    get_cuda_rng_tracker().fork = lambda *_: contextlib.nullcontext()  # of dropout, which is 0
    config = TransformerConfig(
        num_layers=flags["num-layers"], hidden_size=flags["hidden-size"], num_attention_heads=flags["num-attention-heads"],
        num_query_groups=flags["num-query-groups"], kv_channels=flags["kv-channels"], ffn_hidden_size=flags["ffn-hidden-size"],
        attention_output_gate=flags["attention-output-gate"], qk_layernorm=flags["qk-layernorm"], use_cpu_initialization=True,
        normalization=flags["normalization"], layernorm_epsilon=flags["norm-epsilon"], add_bias_linear=False, gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, hidden_dropout=0.0, attention_dropout=0.0, bias_dropout_fusion=False,
        bias_activation_fusion=False, masked_softmax_fusion=False, gradient_accumulation_fusion=False, persist_layer_norm=False,
        apply_rope_fusion=False)
    layer = get_gpt_layer_local_spec(qk_layernorm=True, normalization=flags["normalization"])
    model = GPTModel(config, layer, vocab_size=flags["vocab-size"], max_sequence_length=flags["seq-length"],
                     position_embedding_type="rope", rotary_percent=flags["rotary-percent"], share_embeddings_and_output_weights=False)
    return model.double()


def local_name(name):
    """Where norms are modules of their own."""
    return name.replace("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight").replace(
        "mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight")


def main():
    reference = json.loads((GOLDEN / "qwen3_next.json").read_text())
    weights, gradients = (load_file(GOLDEN / f"qwen3_next.{part}.safetensors") for part in ("weights", "gradients"))
    model = make_model(reference["flags"])
    parameters = dict(model.named_parameters())
    assert {local_name(name) for name in weights} == parameters.keys(), parameters.keys() ^ weights.keys()
    with torch.no_grad():
        for name, weight in weights.items():
            parameters[local_name(name)].copy_(weight.double() + (1 if "norm" in name else 0))
    seq = reference["flags"]["seq-length"]
    row = torch.tensor(reference["tokens"])
    tokens, labels = row[:-1].view(-1, seq), row[1:].view(-1, seq)
    unseen = torch.ones(1, 1, seq, seq, dtype=torch.bool).triu(1)
    loss = model(tokens, torch.arange(seq).expand_as(tokens), unseen, labels=labels).mean()
    loss.backward()
    worst = abs(loss.item() - reference["loss"]) / reference["loss"]
    for name, want in gradients.items():
        seen = parameters[local_name(name)].grad
        worst = max(worst, ((seen - want).norm() / want.norm()).item())
    print(f"loss and {len(gradients)} gradients, largest relative difference {worst:.1e}")
    sys.exit(0 if worst < BAR else 1)


if __name__ == "__main__":
    main()
