#!/usr/bin/env python3
"""`msckpt merge --mem 64` stays within 64 MiB (ru_maxrss of wait4) for four checkpoints of 117 MB in three layouts."""
import json
import os
import struct
import subprocess
import sys

import training

HIDDEN, FFN, LAYERS, VOCABULARY = 512, 2048, 4, 16000
MIB = 1 << 20


def make_model(folder, seed):
    os.makedirs(folder)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FFN,
              "num_hidden_layers": LAYERS, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": VOCABULARY,
              "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": False, "torch_dtype": "float32"}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    shapes = {"model.embed_tokens.weight": [VOCABULARY, HIDDEN], "lm_head.weight": [VOCABULARY, HIDDEN], "model.norm.weight": [HIDDEN]}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name in "qkvo":
            shapes[f"{prefix}self_attn.{name}_proj.weight"] = [HIDDEN, HIDDEN]
        shapes.update({f"{prefix}mlp.gate_proj.weight": [FFN, HIDDEN], f"{prefix}mlp.up_proj.weight": [FFN, HIDDEN],
                       f"{prefix}mlp.down_proj.weight": [HIDDEN, FFN], f"{prefix}input_layernorm.weight": [HIDDEN],
                       f"{prefix}post_attention_layernorm.weight": [HIDDEN]})
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = struct.pack("<1024f", *(((i * 7 + seed) % 101 - 50) / 1000 for i in range(1024)))
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for begin in range(0, at, len(block)):
            file.write(block[:at - begin])


def main():
    with training.workplace(needs_mpirun=False) as place:
        for seed, layout in enumerate(([], ["--target-tensor-parallel-size", "2"], [], ["--target-pipeline-parallel-size", "2"])):
            make_model(place.path(f"hf{seed}"), seed)
            ran = place.tool("msckpt", "convert", "--load-dir", f"hf{seed}", "--save-dir", f"ms{seed}", *layout)
            place.expect(ran.exit == 0, "a checkpoint is made", ran)
        for threads in ("1", "4"):
            command = [os.path.join(place.bin, "msckpt"), "merge", *(f"ms{i}" for i in range(4)), "--save-dir", f"merged{threads}", "--mem", "64",
                       "--threads", threads]
            process = subprocess.Popen(command, cwd=place.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            print(f"{threads} threads: {usage.ru_maxrss / 1024:.1f} MiB")
            place.expect(process.returncode == 0, "they are merged")
            place.expect(usage.ru_maxrss * 1024 <= 64 * MIB, f"{threads} threads: {usage.ru_maxrss / 1024:.1f} MiB, at most 64")


if __name__ == "__main__":
    sys.exit(main())
