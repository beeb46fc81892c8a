#!/usr/bin/env python3
"""Makes the small trees of tests/data/megatron as Megatron saves them with --ckpt-format torch: megatron-core's own GPTModel
(local layer spec), DistributedDataParallel and optimizers on the CPU under gloo, torch.cuda redirected, and torch.save of
what their state_dicts return, as megatron/training/checkpointing.py puts them together (megatron.training is not in the
wheel, so that part is ours).

  make_megatron_tree.py [FOLDER [TREE ...]]     default: megatron beside this script, every tree

Every element is a function of the canonical name of its parameter and its index in the global tensor; what a rank holds of
which global tensor is asked of megatron-core's sharded_state_dict. tests/convert/megatron/value_pattern.h has the same function.

Not genuine, since nothing that runs on a CPU makes them: mindspeed_latent, old_buckets, and mindspeed_te, a tree's weights under Transformer Engine's names, in
the way of MindSpeed-LLM's converter (pickle protocol 4, a defaultdict, weights only, no padding of the vocabulary); legacy_gpt,
under the names and in the nested dictionaries of the GPT before megatron-core.
"""
import argparse
import collections
import datetime
import os
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import torch
import torch.utils.serialization

os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"


def redirect_cuda():
    """Megatron asks for the GPU by torch.cuda and by the names of tensor types: both lead to the CPU."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    for name in ("synchronize", "empty_cache", "set_device", "manual_seed", "reset_peak_memory_stats", "Stream"):
        setattr(torch.cuda, name, lambda *args, **kwargs: None)
    real_tensor = torch.tensor
    torch.tensor = lambda *args, device=None, **kwargs: real_tensor(*args, **kwargs)
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    real_type = torch.Tensor.type
    torch.Tensor.type = lambda self, *args, **kwargs: (real_type(self, *args, **kwargs) if args or kwargs
                                                       else real_type(self).replace("torch.", "torch.cuda."))


redirect_cuda()
from megatron.core import parallel_state  # noqa: E402
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory  # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_local_spec, get_gpt_mtp_block_spec  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.transformer import MLATransformerConfig, TransformerConfig, multi_latent_attention  # noqa: E402
from megatron.core.transformer.dot_product_attention import DotProductAttention  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402
from megatron.core.transformer.moe import grouped_gemm_util  # noqa: E402

ITERATION, BATCH = 7, 4


def let_attention_be_latent():
    """megatron-core's own attention, which has no parameters, does not know the head sizes that latent attention asks it for; and
    latent attention asks whether its layers are Transformer Engine's, where that is not installed."""
    own = DotProductAttention.__init__
    DotProductAttention.__init__ = lambda self, *args, k_channels=None, v_channels=None, **kwargs: own(self, *args, **kwargs)
    for name in ("TELinear", "TEColumnParallelLinear"):
        if not isinstance(getattr(multi_latent_attention, name), type):
            setattr(multi_latent_attention, name, type(name, (), {}))


let_attention_be_latent()
grouped_gemm_util.assert_grouped_gemm_is_available = lambda: None  # which grouped experts need to compute, not to be there
# What megatron/training/arguments.py holds by default, of what a reader of checkpoints may ask.
DEFAULTS = dict(
    add_bias_linear=True, add_position_embedding=True, add_qkv_bias=False, apply_layernorm_1p=False,
    attention_dropout=0.0, bf16=True, bias_gelu_fusion=True, consumed_train_samples=ITERATION * BATCH,
    context_parallel_size=1, data_parallel_size=1, ddp_bucket_size=None, decoder_first_pipeline_num_layers=None,
    expert_model_parallel_size=1, ffn_hidden_size=None, fp16=False, group_query_attention=False, hidden_dropout=0.0,
    kv_channels=None, make_vocab_size_divisible_by=8, max_position_embeddings=8, mtp_num_layers=None,
    multi_latent_attention=False, norm_epsilon=1e-5, normalization="LayerNorm", num_experts=None, num_query_groups=1,
    overlap_grad_reduce=False, params_dtype=torch.bfloat16, pipeline_model_parallel_size=1,
    position_embedding_type="learned_absolute", qk_layernorm=False, rope_scaling_factor=8.0, rotary_base=10000,
    rotary_interleaved=False, rotary_percent=1.0, rotary_seq_len_interpolation_factor=None, seq_length=8, squared_relu=False,
    swiglu=False, tensor_model_parallel_size=1, untie_embeddings_and_output_weights=False, use_distributed_optimizer=False,
    expert_tensor_parallel_size=None, moe_layer_freq=1, moe_ffn_hidden_size=None, moe_router_topk=2, moe_shared_expert_intermediate_size=None,
    moe_router_score_function="softmax", moe_router_enable_expert_bias=False, moe_grouped_gemm=False, q_lora_rank=None,
    kv_lora_rank=32, qk_head_dim=128, qk_pos_emb_head_dim=64, v_head_dim=128, use_rope_scaling=False, virtual_pipeline_model_parallel_size=None, vocab_size=21)
EXPERTS = dict(
    num_experts=4, moe_ffn_hidden_size=6, hidden_size=8, num_attention_heads=2, ffn_hidden_size=10, normalization="RMSNorm",
    add_bias_linear=False, swiglu=True, position_embedding_type="rope", untie_embeddings_and_output_weights=True)
LATENT = dict(
    multi_latent_attention=True, qk_layernorm=True, q_lora_rank=10, kv_lora_rank=6, qk_head_dim=4, qk_pos_emb_head_dim=2,
    v_head_dim=6)
TREES = {
    # Stages of one and two layers; on the first several buckets. The boundaries of dp cut through parameters.
    "swiglu_tp2_pp2_distributed": dict(
        tensor_model_parallel_size=2, pipeline_model_parallel_size=2, data_parallel_size=2, num_layers=3,
        decoder_first_pipeline_num_layers=1, hidden_size=8, num_attention_heads=4, group_query_attention=True,
        num_query_groups=2, ffn_hidden_size=12, normalization="RMSNorm", add_bias_linear=False, swiglu=True,
        position_embedding_type="rope", rotary_base=5000, untie_embeddings_and_output_weights=True,
        use_distributed_optimizer=True, overlap_grad_reduce=True, ddp_bucket_size=200),
    # The word embeddings have a copy on the last stage, and a bucket of their own.
    "tied_pp2_distributed": dict(
        pipeline_model_parallel_size=2, data_parallel_size=2, num_layers=2, hidden_size=6, num_attention_heads=2,
        ffn_hidden_size=10, use_distributed_optimizer=True),
    "gelu_vpp2_fp32": dict(
        pipeline_model_parallel_size=2, virtual_pipeline_model_parallel_size=2, num_layers=4, hidden_size=4,
        num_attention_heads=2, ffn_hidden_size=6, add_bias_linear=False, bf16=False, params_dtype=torch.float32),
    "qk_norm_tp2_bf16": dict(
        tensor_model_parallel_size=2, num_layers=1, hidden_size=4, num_attention_heads=2, kv_channels=6, ffn_hidden_size=6,
        normalization="RMSNorm", add_bias_linear=False, add_qkv_bias=True, qk_layernorm=True, swiglu=True,
        position_embedding_type="rope", vocab_size=16),
    # Experts in the second layer, each cut in two, two a rank.
    "moe_tp2_ep2": dict(
        EXPERTS, tensor_model_parallel_size=2, expert_model_parallel_size=2, data_parallel_size=2, num_layers=2,
        moe_layer_freq=[0, 1], moe_shared_expert_intermediate_size=4, group_query_attention=True, num_query_groups=2,
        make_vocab_size_divisible_by=1, vocab_size=10),
    # Whole experts on each tensor-parallel rank; latent attention, whose projections down are cut; a bias in the choice; a
    # layer behind the model.
    "moe_latent_tp2_ep2_etp1": dict(
        EXPERTS, **LATENT, tensor_model_parallel_size=2, pipeline_model_parallel_size=2, expert_model_parallel_size=2,
        expert_tensor_parallel_size=1, num_layers=2, moe_layer_freq=[0, 1], moe_router_score_function="sigmoid",
        moe_router_enable_expert_bias=True, mtp_num_layers=1, make_vocab_size_divisible_by=1, vocab_size=10),
    # The experts of a rank in two tensors.
    "moe_grouped_tp2_ep2_distributed": dict(
        EXPERTS, tensor_model_parallel_size=2, expert_model_parallel_size=2, data_parallel_size=2, num_layers=1,
        moe_grouped_gemm=True, make_vocab_size_divisible_by=1, vocab_size=10, use_distributed_optimizer=True),
    "moe_ep2_distributed": dict(
        EXPERTS, expert_model_parallel_size=2, data_parallel_size=4, num_layers=2, make_vocab_size_divisible_by=1,
        vocab_size=10, use_distributed_optimizer=True),
}


def mix(role, name, index):
    """splitmix64 of the index, begun at FNV-1a of "role:name"; index: an array of int64."""
    seed = 0xCBF29CE484222325
    for byte in f"{role}:{name}".encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    z = np.uint64(seed) + index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def values(role, name, index):
    """fp32. Role master rounds to role param, which bf16 holds exactly; an fp32 model's parameters are masters."""
    if role in ("param", "master"):
        z = mix("param", name, index)
        value = 1 + ((z >> np.uint64(1)) & np.uint64(127)).astype(np.float64) / 128
        if role == "master":
            value += ((z >> np.uint64(8)) % np.uint64(201)).astype(np.float64) / 65536 - 100 / 65536
        sign = 1 - 2 * (z & np.uint64(1)).astype(np.float64)
    else:
        z = mix(role, name, index)
        value = 1 + (z & np.uint64(0x7FFFFF)).astype(np.float64) / 2**23
        sign = 1 if role != "exp_avg" else 1 - 2 * (z >> np.uint64(63)).astype(np.float64)
    return torch.from_numpy((sign * value).astype(np.float32))


class Pieces:
    """Where each parameter of a chunk lies in the global tensors, by megatron-core's word."""

    def __init__(self, module):
        self.of, self.buffers = {}, {n: b for n, b in module.named_buffers() if n.endswith("expert_bias")}
        sharded = module.sharded_state_dict(metadata={"non_homogeneous_layers": True, "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)})
        self.keys = {part.key for entry in sharded.values() for part in self.parts(entry)}
        parameters = dict(module.named_parameters())
        self.grouped = {}  # how a tensor is made of those of its parts
        for name in [*parameters, *self.buffers]:
            parts = self.parts(sharded[name])
            self.of[name] = [piece for part in parts for piece in self.pieces(part)]
            if name.endswith(("experts.weight1", "experts.weight2")):
                self.grouped[name] = (sharded[name].merge_fn, len(parts))
        self.parameters = parameters

    @staticmethod
    def parts(entry):
        parts = entry.build() if isinstance(entry, ShardedTensorFactory) else [entry]
        return [part for part in (parts if isinstance(parts, list) else [parts]) if isinstance(part, ShardedTensor)]

    def canonical(self, key, expert):
        """The name that we have for what megatron-core calls so: of an expert with its index, of a norm that stands alone."""
        if expert is not None:
            key = key.replace("mlp.experts.experts.", f"mlp.experts.local_experts.{expert}.")
        for alone in (False, True):
            names = ("mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm.")
            layer, norm, rest = key.partition(names[alone])
            if norm:
                return layer + names[layer + "mlp.router.weight" in self.keys] + rest
        if any("linear_kv_up_proj" in each for each in self.keys):
            for theirs, ours in (("q_layernorm.", "linear_q_up_proj.layer_norm_"), ("kv_layernorm.", "linear_kv_up_proj.layer_norm_")):
                key = key.replace("self_attention." + theirs, "self_attention." + ours)
        return key

    def pieces(self, part):
        """What a part has of which tensors: of several where it is a stack of experts."""
        assert isinstance(part, ShardedTensor) and part.prepend_axis_num <= 1
        stacked = part.prepend_axis_num or (1 if ".mlp.experts.experts." in part.key else 0)
        experts = range(part.global_offset[0], part.global_offset[0] + (part.local_shape[0] if not part.prepend_axis_num else 1))
        offsets, lengths = part.global_offset[stacked:], part.global_shape[stacked:]
        local = part.local_shape[stacked - part.prepend_axis_num:]
        axes = [np.arange(offset, offset + length) for offset, length in zip(offsets, local)]
        index = np.zeros(local, np.int64)
        for axis, length in zip(np.meshgrid(*axes, indexing="ij"), lengths):
            index = index * length + axis
        return [(self.canonical(part.key, expert), index) for expert in (experts if stacked else [None])]

    def values(self, name, role):
        of_pieces = [values(role, key, index) for key, index in self.of[name]]
        if name not in self.grouped:
            return torch.cat(of_pieces)
        merge, parts = self.grouped[name]
        experts = len(of_pieces) // parts
        stacks = [torch.stack(of_pieces[part * experts:(part + 1) * experts]) for part in range(parts)]
        return merge(stacks if parts > 1 else stacks[0])


def build_chunk(args, config, chunk):
    pp, chunks = parallel_state.get_pipeline_model_parallel_rank(), args.virtual_pipeline_model_parallel_size or 1
    first = pp == 0 and chunk == 0
    last = pp == args.pipeline_model_parallel_size - 1 and chunk == chunks - 1
    spec = get_gpt_layer_local_spec(qk_layernorm=args.qk_layernorm, normalization=args.normalization)
    mtp = {}
    if args.num_experts or args.multi_latent_attention:
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization=args.normalization)
        if args.mtp_num_layers:
            mtp["mtp_block_spec"] = get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False)
    return GPTModel(
        config, spec, **mtp,
        vocab_size=args.padded_vocab_size, max_sequence_length=args.max_position_embeddings, pre_process=first,
        post_process=last, share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        position_embedding_type=args.position_embedding_type, rotary_percent=args.rotary_percent,
        rotary_base=args.rotary_base, vp_stage=chunk if chunks > 1 else None)


def set_optimizer_state(args, optimizer, all_pieces):
    """Masters and moments; three steps taken (one tensor for all, where AdamW has one for each, to keep the file small)."""
    for inner in optimizer.chained_optimizers:
        set_inner_state(args, inner, all_pieces)


def set_inner_state(args, inner, all_pieces):
    step = torch.tensor(3.0)
    if args.use_distributed_optimizer:
        inner._init_optimizer_states_with_dummy_values()
        for pieces in all_pieces:
            for name, parameter in pieces.parameters.items():
                if parameter not in inner.model_param_group_index_map:
                    continue  # another data-parallel rank's, or of another optimizer
                part = inner._get_model_param_range_map(parameter)["param"]
                tensors = inner._get_main_param_and_optimizer_states(parameter)
                for key, role in (("param", "master"), ("exp_avg", "exp_avg"), ("exp_avg_sq", "exp_avg_sq")):
                    tensors[key].data.copy_(pieces.values(name, role).flatten()[part.start:part.end])
    else:
        own = {id(main) for group in inner.optimizer.param_groups for main in group["params"]}
        for pieces in all_pieces:
            for name, parameter in pieces.parameters.items():
                main = getattr(parameter, "main_param", parameter)
                if id(main) not in own:
                    continue  # of another optimizer
                main.data.copy_(pieces.values(name, "master"))
                inner.optimizer.state[main] = {
                    role: pieces.values(name, role) for role in ("exp_avg", "exp_avg_sq")}
    for state in inner.optimizer.state.values():
        state["step"] = step


def build_rank(args):
    """The rank's chunks, where their parameters lie, and the optimizer: as Megatron begins."""
    kinds = dict(params_dtype=args.params_dtype, bf16=args.bf16)
    more = {}
    if args.num_experts:
        more = dict(num_moe_experts=args.num_experts, moe_ffn_hidden_size=args.moe_ffn_hidden_size, moe_layer_freq=args.moe_layer_freq,
                    moe_router_topk=args.moe_router_topk, moe_token_dispatcher_type="alltoall",
                    moe_shared_expert_intermediate_size=args.moe_shared_expert_intermediate_size,
                    moe_router_score_function=args.moe_router_score_function,
                    moe_router_enable_expert_bias=args.moe_router_enable_expert_bias, mtp_num_layers=args.mtp_num_layers,
                    expert_model_parallel_size=args.expert_model_parallel_size,
                    expert_tensor_parallel_size=args.expert_tensor_parallel_size,
                    moe_grouped_gemm=args.moe_grouped_gemm, moe_use_legacy_grouped_gemm=args.moe_grouped_gemm,
                    moe_router_load_balancing_type="none")
    if args.multi_latent_attention:
        more.update(multi_latent_attention=True, rope_type="rope", **{name: getattr(args, name) for name in LATENT if name not in (
            "multi_latent_attention", "qk_layernorm")})
    config = (MLATransformerConfig if args.multi_latent_attention else TransformerConfig)(
        **more, num_layers=args.num_layers, hidden_size=args.hidden_size, num_attention_heads=args.num_attention_heads,
        num_query_groups=args.num_query_groups if args.group_query_attention else None, kv_channels=args.kv_channels,
        ffn_hidden_size=args.ffn_hidden_size, use_cpu_initialization=True, normalization=args.normalization,
        add_bias_linear=args.add_bias_linear, add_qkv_bias=args.add_qkv_bias, gated_linear_unit=args.swiglu,
        activation_func=torch.nn.functional.silu if args.swiglu else torch.nn.functional.gelu, bias_activation_fusion=False,
        layernorm_epsilon=args.norm_epsilon, qk_layernorm=args.qk_layernorm,
        tensor_model_parallel_size=args.tensor_model_parallel_size, pipeline_dtype=args.params_dtype,
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=args.virtual_pipeline_model_parallel_size,
        num_layers_in_first_pipeline_stage=args.decoder_first_pipeline_num_layers, params_dtype=args.params_dtype,
        bf16=args.bf16)
    chunks = []
    for chunk in range(args.virtual_pipeline_model_parallel_size or 1):
        module = build_chunk(args, config, chunk)
        if args.bf16:
            module = Float16Module(config, module)
        chunks.append(DistributedDataParallel(
            config, DistributedDataParallelConfig(use_distributed_optimizer=args.use_distributed_optimizer,
                                                  overlap_grad_reduce=args.overlap_grad_reduce, bucket_size=args.ddp_bucket_size,
                                                  grad_reduce_in_fp32=True),
            module, disable_bucketing=chunk > 0))
    bare = [chunk.module.module if args.bf16 else chunk.module for chunk in chunks]
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-3, min_lr=1e-4, weight_decay=0.1,
                        use_distributed_optimizer=args.use_distributed_optimizer, **kinds), chunks)
    return chunks, [Pieces(module) for module in bare], optimizer


def rank_folder(args):
    name = f"mp_rank_{parallel_state.get_tensor_model_parallel_rank():02d}"
    name += f"_{parallel_state.get_pipeline_model_parallel_rank():03d}" if args.pipeline_model_parallel_size > 1 else ""
    return name + (f"_{parallel_state.get_expert_model_parallel_rank():03d}" if args.expert_model_parallel_size > 1 else "")


def distributed_state(optimizer):
    """As megatron-core's ChainedOptimizer.save_parameter_state: of each optimizer what its first data-parallel rank has."""
    states = [inner.get_parameter_state_dp_zero() for inner in optimizer.chained_optimizers]
    firsts = [torch.distributed.get_rank(inner.data_parallel_group) == 0 for inner in optimizer.chained_optimizers]
    if not any(firsts):
        return None
    states = [state if first else None for state, first in zip(states, firsts)]
    return states if len(states) > 1 else states[0]


def fill_rank(args):
    """As build_rank, with what belongs into every element."""
    chunks, all_pieces, optimizer = build_rank(args)
    for pieces in all_pieces:
        for name, parameter in pieces.parameters.items():
            parameter.data.copy_(pieces.values(name, "param" if args.bf16 else "master"))
        for name, buffer in pieces.buffers.items():
            buffer.data.copy_(pieces.values(name, "buffer"))
    set_optimizer_state(args, optimizer, all_pieces)
    return chunks, all_pieces, optimizer


def scheduler_state():
    return {
        "max_lr": 1e-3, "lr_warmup_steps": 8, "num_steps": ITERATION * BATCH, "lr_decay_style": "cosine", "lr_decay_steps": 400,
        "min_lr": 1e-4, "start_wd": 0.1, "end_wd": 0.1, "wd_incr_style": "constant", "wd_incr_steps": 400}


def save_rank(args, folder):
    chunks, all_pieces, optimizer = fill_rank(args)
    distributed = distributed_state(optimizer) if args.use_distributed_optimizer else None
    if parallel_state.get_data_parallel_rank() != 0 and parallel_state.get_expert_data_parallel_rank() != 0:
        return
    state = {"args": args, "checkpoint_version": 3.0, "iteration": ITERATION, "num_floating_point_operations_so_far": 1.5e9}
    if len(chunks) == 1:
        state["model"] = chunks[0].state_dict_for_save_checkpoint()
    else:
        for i, chunk in enumerate(chunks):
            state[f"model{i}"] = chunk.state_dict_for_save_checkpoint()
    state["optimizer"] = optimizer.state_dict()
    state["opt_param_scheduler"] = scheduler_state()
    state["rng_state"] = [{"random_rng_state": (3, (1, 2), None), "np_rng_state": ("MT19937", np.arange(4, dtype=np.uint32), 4, 0, 0.0),
                           "torch_rng_state": torch.zeros(8, dtype=torch.uint8)}]
    place = folder / f"iter_{ITERATION:07d}" / rank_folder(args)
    place.mkdir(parents=True)
    torch.save(state, place / "model_optim_rng.pt")
    if distributed is not None:
        torch.save(distributed, place / "distrib_optim.pt")


def run_rank(rank, args, work, meeting):
    world = args.tensor_model_parallel_size * args.pipeline_model_parallel_size * args.data_parallel_size
    args.rank, args.world_size = rank, world
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world,
                                         timeout=datetime.timedelta(seconds=120))
    parallel_state.initialize_model_parallel(args.tensor_model_parallel_size, args.pipeline_model_parallel_size,
                                             args.virtual_pipeline_model_parallel_size,
                                             expert_model_parallel_size=args.expert_model_parallel_size,
                                             expert_tensor_parallel_size=args.expert_tensor_parallel_size)
    torch.set_num_threads(1)
    work()
    torch.distributed.barrier()


def make_args(settings):
    args = argparse.Namespace(**{**DEFAULTS, **settings})
    args.kv_channels = args.kv_channels or args.hidden_size // args.num_attention_heads
    multiple = args.make_vocab_size_divisible_by * args.tensor_model_parallel_size
    args.padded_vocab_size = -(-args.vocab_size // multiple) * multiple
    return args


def make_tree(folder, settings):
    args = make_args(settings)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run_ranks(args, lambda: save_rank(args, folder), folder.name)
    (folder / "latest_checkpointed_iteration.txt").write_text(str(ITERATION))


def run_ranks(args, work, what):
    """Each rank is a process of its own, in which work() finds Megatron's parallel state."""
    world = args.tensor_model_parallel_size * args.pipeline_model_parallel_size * args.data_parallel_size
    with tempfile.TemporaryDirectory() as meeting:
        children = []
        for rank in range(world):
            child = os.fork()
            if child == 0:
                try:
                    run_rank(rank, args, work, pathlib.Path(meeting) / "meeting")
                    os._exit(0)
                except BaseException:
                    import traceback
                    traceback.print_exc()
                    os._exit(1)
            children.append(child)
        assert all([os.waitpid(child, 0)[1] == 0 for child in children]), f"{what}: a rank failed"


def te_name(name):
    """The names of Transformer Engine's layer spec: a norm belongs to the linear layer behind it."""
    return (name.replace("input_layernorm.", "self_attention.linear_qkv.layer_norm_")
            .replace("pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"))


def make_mindspeed(folder, source):
    shutil.rmtree(folder, ignore_errors=True)
    for path in sorted((source / f"iter_{ITERATION:07d}").glob("mp_rank_*/model_optim_rng.pt")):
        state = torch.load(path, weights_only=False)
        model = collections.defaultdict(dict)
        for name, tensor in state["model"].items():
            if tensor is not None:
                model[te_name(name)] = tensor
                if name.endswith("linear_qkv.weight"):
                    model[name.replace("weight", "_extra_state")] = torch.zeros(0, dtype=torch.uint8)
        place = folder / "iter_0000001" / path.parent.name
        place.mkdir(parents=True)
        torch.save({"model": model, "checkpoint_version": 3.0, "iteration": 1, "args": state["args"]}, place / path.name,
                   pickle_protocol=4)
    (folder / "latest_checkpointed_iteration.txt").write_text("1")


def make_mindspeed_latent(folder, source):
    """Latent attention as MindSpeed-LLM has it: one linear_qkv for both projections down, whole on every tensor-parallel rank."""
    shutil.rmtree(folder, ignore_errors=True)
    states = {path.parent.name: torch.load(path, weights_only=False)
              for path in sorted((source / f"iter_{ITERATION:07d}").glob("mp_rank_*/model_optim_rng.pt"))}
    for name, state in states.items():
        of_stage = [other["model"] for other_name, other in states.items() if other_name.split("_")[3] == name.split("_")[3]]
        model = collections.defaultdict(dict)
        for key, tensor in state["model"].items():
            if tensor is None or "linear_kv_down_proj" in key:
                continue
            if "linear_q_down_proj" in key:
                keys = key, key.replace("linear_q_down_proj", "linear_kv_down_proj")
                tensor = torch.cat([other[each] for each in keys for other in of_stage])
                key = key.replace("linear_q_down_proj", "linear_qkv")
            model[key] = tensor
        optimizers = [joined_state(own, [other["optimizer"][0] for other_name, other in states.items()
                                         if other_name.split("_")[3] == name.split("_")[3]], state["model"]) if own is state["optimizer"][0] else own
                      for own in state["optimizer"]]
        place = folder / "iter_0000001" / name
        place.mkdir(parents=True)
        torch.save({"model": model, "optimizer": optimizers, "opt_param_scheduler": state["opt_param_scheduler"], "checkpoint_version": 3.0,
                    "iteration": 1, "args": state["args"]}, place / "model_optim_rng.pt", pickle_protocol=4)
    (folder / "latest_checkpointed_iteration.txt").write_text("1")


def joined_state(own, of_stage, model):
    """The state of that one projection, in place of the two's, of a dense optimizer; of_stage: those of all tensor-parallel ranks."""
    trained = [(name, tensor) for name, tensor in model.items()
               if tensor is not None and "local_experts" not in name and not name.endswith("expert_bias")]
    joined = {"optimizer": {"state": {}, "param_groups": []}, "fp32_from_fp16_params": []}
    for index, group in enumerate(own["optimizer"]["param_groups"]):
        names = [name for name, tensor in trained if (tensor.dim() == 1) == (group["wd_mult"] == 0.0)]
        assert len(names) == len(group["params"]), (names, group)
        params, masters = [], []
        for at, (name, number) in enumerate(zip(names, group["params"])):
            if "linear_kv_down_proj" in name:
                continue
            whole = [at, names.index(name.replace("linear_q_down_proj", "linear_kv_down_proj"))] if "linear_q_down_proj" in name else None
            state = dict(own["optimizer"]["state"][number])
            master = own["fp32_from_fp16_params"][index][at]
            if whole:
                for moment in ("exp_avg", "exp_avg_sq"):
                    state[moment] = torch.cat([other["optimizer"]["state"][group["params"][each]][moment] for each in whole for other in of_stage])
                master = torch.cat([other["fp32_from_fp16_params"][index][each] for each in whole for other in of_stage])
            joined["optimizer"]["state"][number] = state
            params.append(number)
            masters.append(master)
        joined["optimizer"]["param_groups"].append({**group, "params": params})
        joined["fp32_from_fp16_params"].append(masters)
    return joined


def make_old_buckets(folder, source):
    """distrib_optim.pt of before February 2024: a tensor for each bucket, parameters without gaps; of the second stage one tensor for
    all, filled up to a multiple of the data-parallel size, as before there were buckets."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in sorted((source / f"iter_{ITERATION:07d}").glob("mp_rank_*/model_optim_rng.pt")):
        state = torch.load(path, weights_only=False)
        stored = torch.load(path.parent / "distrib_optim.pt", weights_only=False)[0]
        (_, world), = stored.items()
        first_stage = path.parent.name.endswith("_000")
        size = state["args"].ddp_bucket_size if first_stage else 10**9
        buckets, at, begin, counted = [[]], 0, 0, 0
        for tensor in reversed([tensor for tensor in state["model"].values() if tensor is not None]):
            at = begin + -(-(at - begin) // 64) * 64
            buckets[-1].append((at, tensor.numel()))
            at += tensor.numel()
            if at - begin >= size:
                buckets.append([])
                begin = at
        assert at == world["numel_unpadded"]
        buckets = [bucket for bucket in buckets if bucket]
        old = {kind: [torch.cat([world[kind][first:first + count] for first, count in bucket]) for bucket in buckets]
               for kind in ("param", "exp_avg", "exp_avg_sq")}
        if not first_stage:
            dp = state["args"].data_parallel_size
            old = {kind: torch.nn.functional.pad(whole, (0, -whole.numel() % dp)) for kind, (whole,) in old.items()}
        place = folder / f"iter_{ITERATION:07d}" / path.parent.name
        place.mkdir(parents=True)
        torch.save(state, place / path.name)
        torch.save({0: {torch.float32: old}}, place / "distrib_optim.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text(str(ITERATION))


LEGACY = (("decoder.", "encoder."), ("self_attention.linear_qkv.", "self_attention.query_key_value."),
          ("self_attention.linear_proj.", "self_attention.dense."), ("input_layernorm.", "input_norm."),
          ("pre_mlp_layernorm.", "post_attention_norm."), ("mlp.linear_fc1.", "mlp.dense_h_to_4h."),
          ("mlp.linear_fc2.", "mlp.dense_4h_to_h."), ("final_layernorm.", "final_norm."))


def make_legacy(folder, source):
    shutil.rmtree(folder, ignore_errors=True)
    for path in sorted((source / f"iter_{ITERATION:07d}").glob("mp_rank_*/model_optim_rng.pt")):
        state = torch.load(path, weights_only=False)
        model = {"language_model": {}}
        for name, tensor in state["model"].items():
            if tensor is None:
                continue
            if name == "output_layer.weight":
                model["word_embeddings_for_head"] = {"weight": tensor.clone()}
                continue
            for new, old in LEGACY:
                name = name.replace(new, old)
            part, rest = name.split(".", 1)
            model["language_model"].setdefault(part, {})[rest] = tensor.clone()
        place = folder / f"iter_{ITERATION:07d}" / path.parent.name
        place.mkdir(parents=True)
        torch.save({"args": state["args"], "checkpoint_version": 3.0, "iteration": ITERATION, "model": model}, place / path.name)
    (folder / "latest_checkpointed_iteration.txt").write_text(str(ITERATION))


def main():
    torch.utils.serialization.config.save.storage_alignment = 8  # not 64: small files
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent / "megatron"
    chosen = sys.argv[2:] or TREES
    for name, settings in TREES.items():
        if name in chosen:
            make_tree(root / name, settings)
    if chosen is not TREES:
        return
    make_mindspeed(root / "mindspeed_te", root / "qk_norm_tp2_bf16")
    make_mindspeed_latent(root / "mindspeed_latent", root / "moe_latent_tp2_ep2_etp1")
    make_legacy(root / "legacy_gpt", root / "tied_pp2_distributed")
    make_old_buckets(root / "old_buckets", root / "swiglu_tp2_pp2_distributed")


if __name__ == "__main__":
    main()
