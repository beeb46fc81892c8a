#!/usr/bin/env python3
"""Makes tests/data/megatron_dist with genuine megatron-core: a torch_dist checkpoint of a small GPT (RMSNorm, gated MLP,
grouped queries, bf16) at TP 2 PP 2 after one step of its distributed optimizer, and what is in it as others read it.

  tests/data/make_megatron_dist.py [FOLDER]     needs torch and megatron-core; made with 2.13.0 and 0.16.1

expected.safetensors: "ROLE:NAME", weights as megatron-core itself loads them at TP 1 PP 1, optimizer state as
torch.distributed.checkpoint loads it. megatron-core asks for CUDA in places: what it asks for is given on the CPU.
"""
import argparse
import os
import shutil
import sys

import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.overrides import TorchFunctionMode

MODEL = dict(num_layers=2, hidden_size=8, ffn_hidden_size=12, num_attention_heads=4, num_query_groups=2)
VOCAB, PADDED, LENGTH = 29, 32, 16
TP, PP = 2, 2


class OnCpu(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if "cuda" in str(kwargs.get("device", "")):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def redirect_cuda():
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.is_available = lambda: False
    torch.cuda.synchronize = lambda *_: None
    torch.Tensor.cuda = lambda self, *_, **__: self
    plain_type = torch.Tensor.type

    def cuda_type(self, *args, **kwargs):
        found = plain_type(self, *args, **kwargs)
        return found.replace("torch.cuda.", "torch.").replace("torch.", "torch.cuda.") if isinstance(found, str) else found

    torch.Tensor.type = cuda_type
    OnCpu().__enter__()


def start(rank, tp, pp, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(tp * pp),
                      CUDA_DEVICE_MAX_CONNECTIONS="1")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    redirect_cuda()
    from megatron.core import parallel_state
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp)


def make_model(tp, pp):
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig
    config = TransformerConfig(**MODEL, use_cpu_initialization=True, bf16=True, params_dtype=torch.bfloat16,
                               pipeline_dtype=torch.bfloat16, tensor_model_parallel_size=tp,
                               pipeline_model_parallel_size=pp, gated_linear_unit=True,
                               activation_func=torch.nn.functional.silu, add_bias_linear=False, normalization="RMSNorm")
    model = GPTModel(config, get_gpt_layer_local_spec(normalization="RMSNorm"), vocab_size=PADDED,
                     max_sequence_length=LENGTH, pre_process=parallel_state.is_pipeline_first_stage(),
                     post_process=parallel_state.is_pipeline_last_stage(), share_embeddings_and_output_weights=False,
                     position_embedding_type="rope")
    return config, model.bfloat16()


def arguments():
    return argparse.Namespace(
        **MODEL, seq_length=LENGTH, max_position_embeddings=LENGTH, group_query_attention=True, kv_channels=2,
        position_embedding_type="rope", rotary_base=10000, rotary_percent=1.0, add_bias_linear=False, add_qkv_bias=False,
        swiglu=True, normalization="RMSNorm", norm_epsilon=1e-5, layernorm_epsilon=1e-5, num_experts=None,
        untie_embeddings_and_output_weights=True, vocab_size=VOCAB, padded_vocab_size=PADDED,
        make_vocab_size_divisible_by=16, tensor_model_parallel_size=TP, pipeline_model_parallel_size=PP,
        data_parallel_size=1, world_size=TP * PP, attention_dropout=0.0, hidden_dropout=0.0, bf16=True, fp16=False,
        params_dtype=torch.bfloat16, consumed_train_samples=24, iteration=3)


def save(rank, folder):
    start(rank, TP, PP, 29541)
    from megatron.core import dist_checkpointing
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    torch.manual_seed(7 + rank)
    config, model = make_model(TP, PP)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape))
    model = DistributedDataParallel(
        config, DistributedDataParallelConfig(use_distributed_optimizer=True, grad_reduce_in_fp32=True), model)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-3, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=True,
                        clip_grad=0.0), [model])
    for parameter in model.module.parameters():
        parameter.main_grad.copy_(torch.randn(parameter.shape))
    optimizer.step()
    weights = model.module.sharded_state_dict()
    state = optimizer.sharded_state_dict({"model": weights}, metadata={"distrib_optim_sharding_type": "fully_reshardable"})
    dist_checkpointing.save({"model": weights, "optimizer": state, "args": arguments(), "iteration": 3,
                             "checkpoint_version": 3.0,
                             "opt_param_scheduler": {"max_lr": 1e-3, "num_steps": 24}}, folder)
    dist.destroy_process_group()


def canonical(name):
    """With the names of Transformer Engine's norms, which torch_dist has whatever the layers are."""
    return (name.replace(".input_layernorm.", ".self_attention.linear_qkv.layer_norm_")
            .replace(".pre_mlp_layernorm.", ".mlp.linear_fc1.layer_norm_"))


def load(rank, folder):
    start(rank, 1, 1, 29542)
    from megatron.core import dist_checkpointing
    _, model = make_model(1, 1)
    loaded = dist_checkpointing.load({"model": model.sharded_state_dict()}, folder)
    expected = {f"param:{canonical(name)}": value for name, value in loaded["model"].items()
                if isinstance(value, torch.Tensor) and not name.endswith("_extra_state")}
    metadata = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {key: torch.empty(entry.size, dtype=entry.properties.dtype) for key, entry in metadata.items()
             if key.startswith("optimizer.state.")}
    dcp.load(state, checkpoint_id=folder)
    for key, value in state.items():
        kind, name = key.removeprefix("optimizer.state.").split(".", 1)
        role = {"param": "master"}.get(kind, kind)
        if not name.startswith("decoder.layers."):
            expected[f"{role}:{name}"] = value
            continue
        name = name.removeprefix("decoder.layers.")
        for layer, part in enumerate(value):
            expected[f"{role}:decoder.layers.{layer}.{name}"] = part.contiguous()
    safetensors.torch.save_file({name: value.detach().contiguous() for name, value in expected.items()},
                                os.path.join(folder, "..", "expected.safetensors"))
    dist.destroy_process_group()


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "megatron_dist")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.join(folder, "iter_0000003"))
    os.chdir(folder)  # .metadata keeps the path as it was given
    mp.spawn(save, ("iter_0000003",), TP * PP)
    mp.spawn(load, ("iter_0000003",), 1)
    with open("latest_checkpointed_iteration.txt", "w") as tracker:
        tracker.write("3")


if __name__ == "__main__":
    main()
