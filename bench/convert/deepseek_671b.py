#!/usr/bin/env python3
"""Measures memory and time of msckpt convert for DeepSeek-V3 in its real shapes, 671 billion parameters.

  deepseek_671b.py [--layers N] [--keep FOLDER] [--fp8] [--threads N] [--dry-run-only]

Makes a Hugging Face folder like the hub's, with config.json, index and shards with real headers, whose data is a hole (uses no
disk space). Then runs `msckpt convert` to a Megatron tree of TP 8 PP 8 EP 16 as a dry run, and the same into a sink that
discards the data (bench.convert.huge). Bar: 256 MiB resident. MS_BIN is the folder of our programs; the bench is expected next
to it.

The whole model into the null sink is 1.3 TB of memory traffic; --layers keeps only the first N layers.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers"))
import peers  # noqa: E402

BAR_MIB = 256
HIDDEN, DENSE, EXPERT, EXPERTS, HEADS, VOCAB = 7168, 18432, 2048, 256, 128, 129280
Q_RANK, KV_RANK, NOPE, ROPE, VALUE, FIRST_DENSE, LAYERS = 1536, 512, 128, 64, 128, 3, 61
BLOCK, SHARD_BYTES = 128, 4_300_000_000
CONFIG = dict(
    architectures=["DeepseekV3ForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=0, eos_token_id=1,
    ep_size=1, first_k_dense_replace=FIRST_DENSE, hidden_act="silu", hidden_size=HIDDEN, initializer_range=0.02,
    intermediate_size=DENSE, kv_lora_rank=KV_RANK, max_position_embeddings=163840, model_type="deepseek_v3",
    moe_intermediate_size=EXPERT, moe_layer_freq=1, n_group=8, n_routed_experts=EXPERTS, n_shared_experts=1,
    norm_topk_prob=True, num_attention_heads=HEADS, num_experts_per_tok=8, num_key_value_heads=HEADS,
    num_nextn_predict_layers=1, q_lora_rank=Q_RANK, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, rms_norm_eps=1e-6,
    rope_scaling=dict(beta_fast=32, beta_slow=1, factor=40, mscale=1.0, mscale_all_dim=1.0,
                      original_max_position_embeddings=4096, type="yarn"),
    rope_theta=10000, routed_scaling_factor=2.5, scoring_func="sigmoid", tie_word_embeddings=False, topk_group=4,
    topk_method="noaux_tc", torch_dtype="bfloat16", use_cache=True, v_head_dim=VALUE, vocab_size=VOCAB)


def layer(prefix, dense):
    yield prefix + "input_layernorm.weight", [HIDDEN]
    yield prefix + "self_attn.q_a_proj.weight", [Q_RANK, HIDDEN]
    yield prefix + "self_attn.q_a_layernorm.weight", [Q_RANK]
    yield prefix + "self_attn.q_b_proj.weight", [HEADS * (NOPE + ROPE), Q_RANK]
    yield prefix + "self_attn.kv_a_proj_with_mqa.weight", [KV_RANK + ROPE, HIDDEN]
    yield prefix + "self_attn.kv_a_layernorm.weight", [KV_RANK]
    yield prefix + "self_attn.kv_b_proj.weight", [HEADS * (NOPE + VALUE), KV_RANK]
    yield prefix + "self_attn.o_proj.weight", [HIDDEN, HEADS * VALUE]

    def mlp(name, size):
        yield f"{prefix}mlp.{name}gate_proj.weight", [size, HIDDEN]
        yield f"{prefix}mlp.{name}up_proj.weight", [size, HIDDEN]
        yield f"{prefix}mlp.{name}down_proj.weight", [HIDDEN, size]
    if dense:
        yield from mlp("", DENSE)
    else:
        yield prefix + "mlp.gate.weight", [EXPERTS, HIDDEN]
        yield prefix + "mlp.gate.e_score_correction_bias", [EXPERTS]
        yield from mlp("shared_experts.", EXPERT)
        for expert in range(EXPERTS):
            yield from mlp(f"experts.{expert}.", EXPERT)
    yield prefix + "post_attention_layernorm.weight", [HIDDEN]


def tensors(layers):
    yield "model.embed_tokens.weight", [VOCAB, HIDDEN]
    for i in range(layers):
        yield from layer(f"model.layers.{i}.", i < FIRST_DENSE)
    prefix = f"model.layers.{layers}."
    yield prefix + "embed_tokens.weight", [VOCAB, HIDDEN]
    for name in ("enorm", "hnorm", "shared_head.norm"):
        yield f"{prefix}{name}.weight", [HIDDEN]
    yield prefix + "eh_proj.weight", [HIDDEN, 2 * HIDDEN]
    yield prefix + "shared_head.head.weight", [VOCAB, HIDDEN]
    yield from layer(prefix, False)
    yield "model.norm.weight", [HIDDEN]
    yield "lm_head.weight", [VOCAB, HIDDEN]


def entries(layers, fp8):
    for name, shape in tensors(layers):
        is_fp8 = fp8 and "_proj" in name and "eh_proj" not in name
        kind = "F8_E4M3" if is_fp8 else "F32" if name.endswith("correction_bias") else "BF16"
        yield name, kind, shape
        if is_fp8:
            yield name + "_scale_inv", "F32", [-(-shape[0] // BLOCK), -(-shape[1] // BLOCK)]


def write_folder(folder, layers, fp8):
    """Returns parameters, tensors, bytes and shards."""
    size_of = {"F8_E4M3": 1, "BF16": 2, "F32": 4}
    shards, parameters, total = [{}], 0, 0
    end = 0
    for name, kind, shape in entries(layers, fp8):
        numel = shape[0] * (shape[1] if len(shape) > 1 else 1)
        size = numel * size_of[kind]
        if end + size > SHARD_BYTES and shards[-1]:
            shards.append({})
            end = 0
        shards[-1][name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
        total += size
        parameters += 0 if name.endswith(("_scale_inv", "embed_tokens.weight", "head.weight")) and "layers" in name else numel
    weight_map = {}
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        header = json.dumps(shard, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)
        with open(folder / name, "wb") as out:
            out.write(len(header).to_bytes(8, "little") + header)
            out.truncate(8 + len(header) + max(entry["data_offsets"][1] for entry in shard.values()))
        weight_map.update({tensor: name for tensor in shard})
    config = dict(CONFIG, num_hidden_layers=layers)
    if fp8:
        config["quantization_config"] = dict(activation_scheme="dynamic", fmt="e4m3", quant_method="fp8",
                                             weight_block_size=[BLOCK, BLOCK])
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    return parameters, len(weight_map), total, len(shards)


def layer_list(layers, stages):
    """As even as possible, with the first and the last stage no longer than the others."""
    counts = [layers // stages + (0 < i <= layers % stages) for i in range(stages)]
    return ",".join(map(str, counts))


def make_folder(folder, layers, fp8):
    parameters, count, total, shards = write_folder(folder, layers, fp8)
    print(f"{parameters / 1e9:.1f} billion parameters, {count} tensors, {total / 1e9:.1f} GB in {shards} files")


def report(what, command):
    """Prints a command's report, and its peak memory in MiB."""
    ran = peers.measured(command)
    if ran.exit_code != 0:
        sys.exit(f"{what} failed")
    print(f"{what:15} {ran.seconds:8.1f} s  {ran.peak_mib:6.1f} MiB resident at most", flush=True)
    return ran.out, ran.peak_mib


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--layers", type=int, default=LAYERS)
    flags.add_argument("--keep", type=pathlib.Path, help="the folder to make, which stays")
    flags.add_argument("--fp8", action="store_true", help="as the hub has it: FP8 with scales a block, cast to bf16")
    flags.add_argument("--threads", type=int, default=2)
    flags.add_argument("--dry-run-only", action="store_true")
    asked = flags.parse_args()
    msckpt = peers.binary("msckpt")  # a missing program ends the script here, not after the folder is made
    null_sink_bench = None if asked.dry_run_only else peers.benchmark("bench.convert.huge")
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        peers.in_child(make_folder, folder, asked.layers, asked.fp8)
        stages = min(8, asked.layers)
        layout = ["--target-tensor-parallel-size", "8", "--target-pipeline-parallel-size", str(stages),
                  "--target-expert-parallel-size", "16", "--num-layer-list", layer_list(asked.layers, stages)]
        to = ["--save-dir", str(pathlib.Path(temporary) / "mg"), "--save-model-type", "mg", *layout]
        dry_run = [msckpt, "convert", "--load-dir", folder, *to, "--dry-run", "--threads", asked.threads]
        peaks = [report("dry run", dry_run)[1]]
        if null_sink_bench:
            out, peak = report("to a null sink", [null_sink_bench, folder, 8, stages, 16,
                                                  layer_list(asked.layers, stages), asked.threads])
            peaks.append(peak)
            seen = json.loads(out)
            print(f"  {seen['bytes'] / 1e9:.1f} GB in {seen['target_boxes']} parts at {seen['GB_per_s']:.2f} GB/s; "
                  f"{seen['planned_MiB']:.0f} MiB when all was planned")
    if max(peaks) > BAR_MIB:
        sys.exit(f"above {BAR_MIB} MiB")


if __name__ == "__main__":
    main()
