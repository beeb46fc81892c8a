#!/usr/bin/env python3
"""Compares megatron-core's own layers of multi-token prediction, on a CPU, with tests/data/train/mtp.json (mtp.py).

The model is Megatron's GPTModel, whose decoder is left out: what its output layer reads is given. The gradients are those that
MTPLossAutoScaler adds, of the loss of these layers alone. Needs megatron-core and torch (exit 77 without).
"""
import contextlib
import json
import os
import sys
import warnings

import peers

peers.need("torch", "megatron")
warnings.simplefilter("ignore")

import mtp  # noqa: E402
import torch  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec  # noqa: E402
from megatron.core.tensor_parallel import get_cuda_rng_tracker  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper  # noqa: E402

BAR = 1e-6  # its softmax and norms are fp32 in places


def make_model():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    torch.cuda.current_device = lambda: "cpu"
    get_cuda_rng_tracker().fork = lambda *_: contextlib.nullcontext()  # of dropout, which is 0
    config = TransformerConfig(
        num_layers=1, hidden_size=mtp.HIDDEN, num_attention_heads=mtp.HEADS, num_query_groups=mtp.GROUPS, kv_channels=mtp.SIZE,
        ffn_hidden_size=mtp.FFN, mtp_num_layers=mtp.LAYERS, mtp_loss_scaling_factor=mtp.FACTOR, use_cpu_initialization=True,
        normalization="RMSNorm", layernorm_epsilon=mtp.EPS, add_bias_linear=False, gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, hidden_dropout=0.0, attention_dropout=0.0, bias_dropout_fusion=False,
        bias_activation_fusion=False, masked_softmax_fusion=False, gradient_accumulation_fusion=False,
        persist_layer_norm=False, apply_rope_fusion=False)
    layer = get_gpt_layer_local_spec(normalization="RMSNorm")
    model = GPTModel(config, layer, vocab_size=mtp.VOCABULARY, max_sequence_length=mtp.SEQ, position_embedding_type="rope",
                     share_embeddings_and_output_weights=False,
                     mtp_block_spec=get_gpt_mtp_block_spec(config, layer, use_transformer_engine=False))
    return model.double()


def local_name(name):
    """Where norms are modules of their own."""
    return name.replace("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight").replace(
        "mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight").replace("transformer_layer", TRANSFORMER_LAYER)


TRANSFORMER_LAYER = "transformer_layer"  # later versions: mtp_model_layer


def main():
    global TRANSFORMER_LAYER
    model = make_model()
    parameters = dict(model.named_parameters())
    if not any("transformer_layer" in name for name in parameters):
        TRANSFORMER_LAYER = "mtp_model_layer"
    for number, (name, shape) in enumerate(mtp.shapes()):
        is_norm = name.endswith(("norm.weight", "norm_weight"))
        with torch.no_grad():
            parameters[local_name(name)].copy_(((1 if is_norm else 0) + 0.2 * mtp.value(shape, number)).float().double())
    hidden = mtp.value((mtp.SEQ, mtp.BATCH, mtp.HIDDEN), 50).float().double().requires_grad_()
    model.decoder.forward = lambda *_, **__: hidden * 1
    place = torch.arange(mtp.SEQ * mtp.BATCH).view(mtp.SEQ, mtp.BATCH).T.contiguous()
    tokens, labels, mask = place * 53 % mtp.VOCABULARY, place * 37 % mtp.VOCABULARY, (place % 5 != 3).double()
    positions = torch.arange(mtp.SEQ).repeat(mtp.BATCH, 1)
    unseen = torch.ones(1, 1, mtp.SEQ, mtp.SEQ, dtype=torch.bool).triu(1)
    result = model(tokens, positions, unseen, labels=labels, loss_mask=mask)
    result.backward(torch.zeros_like(result))
    want = json.loads(mtp.GOLDEN.read_text())
    pairs = list(zip(MTPLossLoggingHelper.tracker["values"].tolist(), want["losses"], strict=True))
    names = [*(name for name, _ in mtp.shapes()), "hidden"]
    for number, name in enumerate(names):
        gradient = hidden.grad if name == "hidden" else parameters[local_name(name)].grad
        length, along = want["gradients"][name]
        seen = (gradient * mtp.value(gradient.shape, number + mtp.DIRECTION)).sum().item()
        pairs += [(gradient.norm().item(), length), (1 + (seen - along) / length, 1)]
    worst = max(abs(seen - value) / abs(value) for seen, value in pairs)
    print(f"{len(pairs)} numbers, largest relative difference {worst:.1e}")
    sys.exit(0 if worst < BAR else 1)


if __name__ == "__main__":
    main()
