#!/usr/bin/env python3
"""Users' own scripts: the argument blocks of Megatron-LM's, MindSpeed's and MindSpeed-LLM's examples, with the program's
name and the launcher replaced, the paths filled in and the sizes reduced, run to the end. Blocks that need something
that is not implemented are refused with one line that names the flag.

  argument_blocks.py [--all | --mixtures]     all blocks here, or those of mixtures of experts (mixture_blocks.py); else those
                                              of the default tests (MS_BIN: folder of the binaries)
"""
import json
import os
import re
import shutil
import sys

import mixture_blocks
import training

# Reduced sizes; others stay. Parallel sizes are reduced to at most 2.
SMALL = {"num-layers": 4, "hidden-size": 32, "ffn-hidden-size": 64, "num-attention-heads": 4, "num-query-groups": 2,
         "kv-channels": 8, "seq-length": 16, "max-position-embeddings": 16, "micro-batch-size": 1, "global-batch-size": 4,
         "train-iters": 2, "train-samples": 8, "lr-decay-iters": 2, "lr-warmup-iters": 1, "eval-iters": 1,
         "sliding-window": 8, "padded-vocab-size": 512, "make-vocab-size-divisible-by": 8}
PARALLEL = ("tensor-model-parallel-size", "pipeline-model-parallel-size")
# The only additions: a script does not measure the machine's roofline or use all its cores.
OURS = "--peak-tflops 0.1 --threads-per-rank 1 --distributed-timeout-minutes 1".split()


class Block:
    """source: project, release, script. text: its flags, with a placeholder for each path (DATA, CKPT, LOAD, VOCAB, MERGES,
    TOKENIZER, SPM, BOARD). default: whether the default tests run it. refused: the flag that the refusal names; none: it runs.
    sizes: what else was changed."""

    def __init__(self, name, source, text, default=False, refused=None, dp=1, **sizes):
        self.name, self.source, self.default, self.refused, self.dp = name, source, default, refused, dp
        self.sizes = {key.replace("_", "-"): value for key, value in sizes.items()}
        self.words = text.split()

    def shrunk(self, paths):
        sizes = {**SMALL, **self.sizes}
        out, ranks, flag = [], self.dp, None
        for word in self.words:
            if word.startswith("--"):
                flag = word[2:]
            elif flag in PARALLEL:
                word = str(min(int(word), sizes.get(flag, 2)))
                ranks *= int(word)
            elif flag in sizes and word != "0":
                word = str(sizes[flag])
            else:
                word = paths.get(word, word)
            out.append(word)
        return out, ranks


MEGATRON_2 = ("NVIDIA/Megatron-LM", "2.x and 3.0")
MEGATRON_06 = ("NVIDIA/Megatron-LM", "core_r0.6.0")
MEGATRON_08 = ("NVIDIA/Megatron-LM", "core_r0.7.0, core_r0.8.0")
MINDSPEED = ("Ascend/MindSpeed", "core_r0.8.0")
MINDSPEED_LLM = ("Ascend/MindSpeed-LLM", "2.x")

GPT_345M = """--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024
  --train-iters 500000 --lr-decay-iters 320000 --lr 0.00015 --min-lr 1.0e-5 --lr-decay-style cosine --weight-decay 1e-2
  --clip-grad 1.0 --lr-warmup-fraction .01 --fp16"""
OLD_345M = GPT_345M + """ --save CKPT --load CKPT --data-path DATA --vocab-file VOCAB --merge-file MERGES --data-impl mmap
  --split 949,50,1 --distributed-backend nccl --checkpoint-activations --log-interval 100 --save-interval 10000
  --eval-interval 1000 --eval-iters 10"""
NEW_345M = GPT_345M + """ --data-path DATA --vocab-file VOCAB --merge-file MERGES --split 949,50,1 --log-interval 100
  --save-interval 10000 --eval-interval 1000 --eval-iters 10 --distributed-backend nccl --save CKPT --load CKPT"""
GPT_175B = """--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048
  --micro-batch-size 1 --global-batch-size 1536 --train-iters 500000 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95
  --init-method-std 0.006 --clip-grad 1.0 --fp16 --lr 6.0e-5 --lr-decay-style cosine --min-lr 6.0e-6
  --lr-warmup-fraction .001 --lr-decay-iters 430000 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16
  --data-path DATA --vocab-file VOCAB --merge-file MERGES --split 949,50,1 --log-interval 100 --save-interval 10000
  --eval-interval 1000 --save CKPT --load CKPT --eval-iters 10 --tensorboard-dir BOARD"""
LLAMA_COMMON = """--untie-embeddings-and-output-weights --disable-bias-linear --attention-dropout 0.0 --hidden-dropout 0.0
  --init-method-std 0.01 --normalization RMSNorm --use-fused-rmsnorm --swiglu --use-flash-attn --no-masked-softmax-fusion
  --attention-softmax-in-fp32 --weight-decay 1e-1 --lr-warmup-fraction 0.01 --clip-grad 1.0 --adam-beta1 0.9
  --adam-beta2 0.95 --no-gradient-accumulation-fusion --no-load-optim --no-load-rng --bf16 --lr-decay-style cosine"""

BLOCKS = [
    Block("megatron_2_pretrain_gpt", (*MEGATRON_2, "examples/pretrain_gpt.sh"),
          "--micro-batch-size 4 --global-batch-size 8 " + OLD_345M),
    Block("megatron_2_pretrain_gpt_distributed", (*MEGATRON_2, "examples/pretrain_gpt_distributed.sh"),
          "--micro-batch-size 8 --global-batch-size 64 " + OLD_345M, dp=2),
    Block("megatron_2_pretrain_gpt_distributed_with_mp", (*MEGATRON_2, "examples/pretrain_gpt_distributed_with_mp.sh"),
          "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 4 --global-batch-size 16 " + OLD_345M,
          default=True),
    Block("megatron_06_pretrain_gpt", (*MEGATRON_06, "examples/pretrain_gpt.sh"),
          "--micro-batch-size 4 --global-batch-size 8 " + NEW_345M, default=True),
    Block("megatron_06_pretrain_gpt_distributed", (*MEGATRON_06, "examples/pretrain_gpt_distributed.sh"),
          "--micro-batch-size 8 --global-batch-size 64 " + NEW_345M, dp=2),
    Block("megatron_06_pretrain_gpt_distributed_with_mp", (*MEGATRON_06, "examples/pretrain_gpt_distributed_with_mp.sh"),
          "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel --micro-batch-size 4 "
          "--global-batch-size 16 " + NEW_345M),
    # With --train-iters, Megatron's own arguments.py refuses the growing batch of this script; without it, the script runs.
    Block("megatron_08_gpt3_175b_rampup", (*MEGATRON_08, "examples/gpt3/train_gpt3_175b_distributed.sh"),
          "--rampup-batch-size 16 16 5859375 " + GPT_175B, refused="--rampup-batch-size", default=True),
    Block("megatron_08_gpt3_175b", (*MEGATRON_08, "examples/gpt3/train_gpt3_175b_distributed.sh"), GPT_175B, default=True),
    Block("mindspeed_llama_pp2_dp4", (*MINDSPEED, "tests_extend/system_tests/llama2/pretrain_llama_pp2_dp4.sh"),
          """--use-legacy-models --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel
          --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32
          --tokenizer-type Llama2Tokenizer --tokenizer-model SPM --seq-length 4096 --max-position-embeddings 4096
          --micro-batch-size 1 --global-batch-size 256 --make-vocab-size-divisible-by 1 --lr 1.25e-6 --train-iters 100
          --position-embedding-type rope --min-lr 1.25e-7 --initial-loss-scale 65536 --use-distributed-optimizer
          --use-fused-swiglu --use-fused-rotary-pos-emb --overlap-grad-reduce --overlap-param-gather --data-path DATA_SPM
          --split 100,0,0 --log-throughput --log-interval 1 --save-interval 10000 --save CKPT --eval-interval 1000 --eval-iters 0
          --distributed-backend nccl """ + LLAMA_COMMON, default=True),
    Block("mindspeed_llama_tp2_pp4_vpp2", (*MINDSPEED, "tests_extend/system_tests/llama2/pretrain_llama_tp2_pp4_vpp2.sh"),
          """--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2
          --reuse-fp32-param --no-delay-grad-reduce --delay-param-gather --no-scatter-gather-tensors-in-pipeline
          --sequence-parallel --num-layers 16 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32
          --tokenizer-type Llama2Tokenizer --tokenizer-model SPM --seq-length 4096 --max-position-embeddings 4096
          --micro-batch-size 4 --global-batch-size 32 --make-vocab-size-divisible-by 1 --lr 1.25e-6 --train-iters 1000
          --use-rotary-position-embeddings --use-fused-swiglu --no-position-embedding --min-lr 1.25e-7 --data-path DATA_SPM
          --split 100,0,0 --log-interval 1 --save-interval 10000 --save CKPT --eval-interval 10000 --eval-iters 10
          --distributed-backend nccl """ + LLAMA_COMMON, num_layers=8),
    Block("mindspeed_llama3_8b", (*MINDSPEED, "tests_extend/system_tests/llama3/pretrain_llama3_8b_ptd.sh"),
          """--use-legacy-models --tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --micro-batch-size 2
          --global-batch-size 16 --sequence-parallel --use-rotary-position-embeddings --use-fused-rotary-pos-emb
          --use-fused-swiglu --tokenizer-type PretrainedFromHF --tokenizer-name-or-path TOKENIZER --num-layers 32
          --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8
          --seq-length 8192 --max-position-embeddings 8192 --make-vocab-size-divisible-by 16032
          --position-embedding-type rope --rotary-base 500000 --norm-epsilon 1e-5 --lr 1.25e-6 --train-iters 2500
          --min-lr 1.25e-7 --initial-loss-scale 4096 --data-path DATA_HF --split 100,0,0 --log-interval 1
          --save-interval 10000 --eval-interval 10000 --eval-iters 10 --distributed-backend nccl --save CKPT """ + LLAMA_COMMON,
          default=True),
    Block("mindspeed_llm_llama2_13b", (*MINDSPEED_LLM, "examples/mcore/llama2/pretrain_llama2_13b_ptd.sh"),
          """--use-mcore-models --tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --sequence-parallel
          --num-layers 40 --hidden-size 5120 --ffn-hidden-size 13824 --num-attention-heads 40
          --tokenizer-type PretrainedFromHF --tokenizer-name-or-path TOKENIZER --seq-length 4096
          --max-position-embeddings 4096 --micro-batch-size 4 --global-batch-size 512 --make-vocab-size-divisible-by 1
          --lr 1e-6 --train-iters 5000 --position-embedding-type rope --min-lr 1e-8 --initial-loss-scale 4096 --load LOAD
          --use-fused-swiglu --use-fused-rotary-pos-emb --ckpt-format torch --data-path DATA_HF
          --handler-name GeneralPretrainHandler --split 949,50,1 --enable-hf2mg-convert --model-type-hf llama2
          --log-interval 1 --save-interval 10000 --eval-interval 1000 --eval-iters 10 --distributed-backend nccl --save CKPT
          --transformer-impl local """ + LLAMA_COMMON),
    Block("mindspeed_llm_qwen3_0.6b", (*MINDSPEED_LLM, "examples/mcore/qwen3/pretrain_qwen3_0point6b_ptd.sh"),
          """--use-mcore-models --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 --sequence-parallel
          --spec mindspeed_llm.tasks.models.spec.qwen3_spec layer_spec --kv-channels 128 --qk-layernorm --num-layers 28
          --hidden-size 1024 --num-attention-heads 16 --ffn-hidden-size 3072 --max-position-embeddings 32768
          --make-vocab-size-divisible-by 1 --padded-vocab-size 151936 --rotary-base 1000000 --disable-bias-linear --swiglu
          --tokenizer-type PretrainedFromHF --tokenizer-name-or-path TOKENIZER --normalization RMSNorm
          --position-embedding-type rope --norm-epsilon 1e-6 --no-gradient-accumulation-fusion --attention-softmax-in-fp32
          --group-query-attention --num-query-groups 8 --no-load-optim --no-load-rng --seed 42 --bf16
          --data-path DATA_HF --split 100,0,0 --log-interval 1 --save-interval 1000 --eval-interval 1000 --eval-iters 0
          --use-flash-attn --use-fused-rotary-pos-emb --use-rotary-position-embeddings --use-fused-swiglu --use-fused-rmsnorm
          --no-masked-softmax-fusion --use-distributed-optimizer --micro-batch-size 1 --global-batch-size 64 --lr 1.25e-6
          --min-lr 1.25e-7 --weight-decay 1e-1 --attention-dropout 0.0 --hidden-dropout 0.0 --clip-grad 1.0 --adam-beta1 0.9
          --adam-beta2 0.95 --initial-loss-scale 4096 --seed 42 --bf16 --train-iters 2000 --seq-length 4096
          --no-shared-storage --distributed-backend nccl --log-throughput --load CKPT --save CKPT""", default=True),
    Block("mindspeed_llm_qwen25_0.5b", (*MINDSPEED_LLM, "examples/mcore/qwen25/pretrain_qwen25_0point5_32k_ptd.sh"),
          """--use-mcore-models --use-cp-send-recv-overlap --use-fused-ring-attention-update --tensor-model-parallel-size 2
          --pipeline-model-parallel-size 1 --context-parallel-size 1 --context-parallel-algo megatron_cp_algo
          --sequence-parallel --use-distributed-optimizer --tokenizer-type PretrainedFromHF --tokenizer-name-or-path TOKENIZER
          --seq-length 32768 --max-position-embeddings 32768 --micro-batch-size 1 --global-batch-size 32
          --group-query-attention --num-query-groups 2 --num-layers 24 --hidden-size 896 --ffn-hidden-size 4864
          --num-attention-heads 14 --rotary-base 1000000 --normalization RMSNorm --norm-epsilon 1e-06 --swiglu --add-qkv-bias
          --disable-bias-linear --attention-dropout 0.0 --hidden-dropout 0.0 --make-vocab-size-divisible-by 1
          --padded-vocab-size 151936 --lr 1.25e-6 --train-iters 2000 --lr-decay-style cosine --lr-warmup-fraction 0.01
          --init-method-std 0.01 --position-embedding-type rope --use-fused-rmsnorm --use-fused-rotary-pos-emb
          --use-rotary-position-embeddings --use-fused-swiglu --overlap-grad-reduce --use-flash-attn
          --no-masked-softmax-fusion --attention-softmax-in-fp32 --min-lr 1.25e-7 --weight-decay 1e-1 --clip-grad 1.0
          --adam-beta1 0.9 --adam-beta2 0.95 --initial-loss-scale 4096 --no-gradient-accumulation-fusion --no-load-optim
          --no-load-rng --seed 42 --bf16 --data-path DATA_HF --split 100,0,0 --log-interval 1 --save-interval 1000
          --eval-interval 1000 --eval-iters 0 --distributed-backend nccl --log-throughput --load CKPT --save CKPT
          --transformer-impl local"""),
    Block("mindspeed_llm_qwen3_8b", (*MINDSPEED_LLM, "examples/mcore/qwen3/pretrain_qwen3_8b_4K_ptd.sh"),
          """--use-mcore-models --use-flash-attn --use-fused-rotary-pos-emb --use-rotary-position-embeddings
          --use-fused-swiglu --use-fused-rmsnorm --no-masked-softmax-fusion --use-distributed-optimizer --reuse-fp32-param
          --overlap-grad-reduce --overlap-param-gather --use-ascend-coc --micro-batch-size 1 --global-batch-size 64
          --lr 1.25e-6 --train-iters 2000 --seq-length 4096 --num-layers 36 --hidden-size 4096 --num-attention-heads 32
          --tokenizer-type PretrainedFromHF --tokenizer-name-or-path TOKENIZER --log-interval 1 --save CKPT --bf16
          --data-path DATA_HF""", default=True),
    Block("mindspeed_llm_qwen3_30b_a3b", (*MINDSPEED_LLM, "examples/mcore/qwen3_moe/pretrain_qwen3_30b_a3b_4K_ptd.sh"),
          """--num-experts 128 --moe-router-topk 8 --moe-router-load-balancing-type aux_loss --moe-ffn-hidden-size 768
          --moe-grouped-gemm --moe-permutation-async-comm --moe-token-dispatcher-type alltoall_seq --moe-layer-freq -1
          --first-k-dense-replace -1 --moe-aux-loss-coeff 0.001 --use-flash-attn --use-fused-rotary-pos-emb
          --sequence-parallel --use-rotary-position-embeddings --use-fused-swiglu --use-fused-rmsnorm
          --no-masked-softmax-fusion --use-distributed-optimizer --gemm-gradient-accumulation-fusion
          --recompute-method uniform --recompute-granularity full --recompute-num-layers 1 --micro-batch-size 1
          --global-batch-size 256 --lr 1.25e-6 --lr-decay-style cosine --min-lr 1.25e-7 --weight-decay 1e-1
          --lr-warmup-fraction 0.01 --attention-dropout 0.0 --init-method-std 0.01 --hidden-dropout 0.0 --clip-grad 1.0
          --adam-beta1 0.9 --adam-beta2 0.95 --initial-loss-scale 4096 --seed 42 --bf16 --train-iters 2000 --seq-length 4096
          --no-shared-storage --manual-gc --manual-gc-interval 15 --tensor-model-parallel-size 1
          --pipeline-model-parallel-size 2 --expert-model-parallel-size 8 --context-parallel-size 1
          --context-parallel-algo ulysses_cp_algo --use-mcore-models
          --spec mindspeed_llm.tasks.models.spec.qwen3_spec layer_spec --kv-channels 128 --qk-layernorm --norm-topk-prob
          --tokenizer-name-or-path TOKENIZER --max-position-embeddings 4096 --num-layers 48 --hidden-size 2048
          --ffn-hidden-size 6144 --num-attention-heads 32 --tokenizer-type PretrainedFromHF --make-vocab-size-divisible-by 1
          --padded-vocab-size 151936 --rotary-base 1000000 --untie-embeddings-and-output-weights --disable-bias-linear
          --position-embedding-type rope --normalization RMSNorm --norm-epsilon 1e-6 --swiglu --attention-softmax-in-fp32
          --no-gradient-accumulation-fusion --group-query-attention --num-query-groups 4 --ckpt-format torch
          --data-path DATA_HF --handler-name GeneralPretrainHandler --split 100,0,0 --enable-hf2mg-convert
          --model-type-hf qwen3-moe --log-interval 1 --save-interval 2000 --eval-interval 2000 --eval-iters 0 --no-load-optim
          --no-load-rng --load CKPT --save CKPT --distributed-backend nccl""", default=True, num_experts=8,
          moe_router_topk=2, moe_ffn_hidden_size=16, expert_model_parallel_size=1),
    Block("modellink_mistral_7b", ("Ascend/ModelLink", "1.x", "tests/pipeline/mistral-7B/pretrain_mistral_7b_ptd.sh"),
          """--tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --sequence-parallel --sliding-window 4096
          --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention
          --num-query-groups 8 --tokenizer-type PretrainedFromHF --tokenizer-name-or-path TOKENIZER --seq-length 32768
          --max-position-embeddings 32768 --micro-batch-size 1 --global-batch-size 32 --make-vocab-size-divisible-by 1
          --lr 1.25e-6 --train-iters 2000 --position-embedding-type rope --min-lr 1.25e-7 --initial-loss-scale 65536
          --save CKPT --load CKPT --use-mc2 --use-fused-swiglu --use-rotary-position-embeddings --use-fused-rotary-pos-emb
          --use-distributed-optimizer --overlap-grad-reduce --data-path DATA_HF --split 100,0,0 --log-interval 1
          --eval-iters 0 --distributed-backend nccl """ + LLAMA_COMMON),
]
MIXTURES = [Block(name, (*mixture_blocks.SOURCE, script), text, dp=dp, **{**mixture_blocks.SIZES, **sizes})
            for name, script, text, dp, sizes in mixture_blocks.BLOCKS]


def make_inputs(place):
    """Makes small tokenizers of the kinds that blocks use, and a data set with each."""
    source = os.path.join(os.environ["MS_SOURCE"], "tests/data/train")
    with open(os.path.join(source, "tokenizer_goldens.json"), encoding="utf-8") as file:
        tokenizer = next(g["tokenizer"] for g in json.load(file)["goldens"] if g["name"] == "qwen2")
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    vocabulary = {**tokenizer["model"]["vocab"], **{t["content"]: t["id"] for t in tokenizer["added_tokens"]}}
    for name, text in (("tokenizer.json", json.dumps(tokenizer)), ("vocab.json", json.dumps(vocabulary)),
                       ("merges.txt", "#version: 0.2\n" + "\n".join(merges) + "\n")):
        with open(place.path(name), "w", encoding="utf-8") as file:
            file.write(text)
    shutil.copy(os.path.join(source, "sentencepiece/bpe.model"), place.path("tokenizer.model"))
    sets = {"DATA": ["--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", "vocab.json", "--merge-file", "merges.txt"],
            "DATA_HF": ["--tokenizer-type", "PretrainedFromHF", "--tokenizer-name-or-path", "tokenizer.json"],
            "DATA_SPM": ["--tokenizer-type", "Llama2Tokenizer", "--tokenizer-model", "tokenizer.model"]}
    with open(place.path("text.jsonl"), "w", encoding="utf-8") as file:
        for i in range(300):
            file.write(json.dumps({"text": " ".join(f"the quick fox {i * j % 97} runs" for j in range(6))}) + "\n")
    for name, flags in sets.items():
        made = place.tool("msdata", "preprocess", "text.jsonl", "--output-prefix", name, "--append-eod", *flags)
        place.expect(made.exit == 0, f"msdata makes {name}", made)
    return {**{name: f"{name}_text_document" for name in sets}, "VOCAB": "vocab.json", "MERGES": "merges.txt",
            "TOKENIZER": "tokenizer.json", "SPM": "tokenizer.model", "LOAD": "no_checkpoint_yet"}


def run_block(place, block, paths):
    checkpoint = f"ckpt_{block.name}"
    words, ranks = block.shrunk({**paths, "CKPT": checkpoint, "BOARD": f"board_{block.name}"})
    if "--finetune" in words:  # from a checkpoint
        first, _ = block.shrunk({**paths, "CKPT": f"first_{block.name}", "LOAD": f"first_{block.name}"})
        ran = place.run(*(word for word in first if word != "--finetune"), *OURS, ranks=ranks, data=None, model=())
        place.expect(ran.exit == 0, f"{block.name}: makes what it starts from", ran)
        words = [f"first_{block.name}" if word == paths["LOAD"] else word for word in words]
    ran = place.run(*words, *OURS, ranks=ranks, data=None, model=())
    what = f"{block.name} ({', '.join(block.source)})"
    if block.refused:
        place.expect(ran.exit == 2 and len(ran.errors) == 1 and block.refused in ran.errors[0], f"{what}: refused, naming {block.refused}", ran)
        return False
    ended = place.expect(ran.exit == 0 and not ran.errors, f"{what}: runs to the end", ran)
    place.expect("saved iteration 2 to" in ran.stderr, f"{what}: both steps", ran)
    notices = re.findall(r"mstrain\] (--[\w-]+):", ran.stderr)
    place.expect(len(notices) == len(set(notices)), f"{what}: one notice a flag", ran)
    shutil.rmtree(place.path(checkpoint), ignore_errors=True)
    return ended


def main():
    if "--mixtures" in sys.argv[1:]:
        chosen = MIXTURES
    elif "--all" in sys.argv[1:]:
        chosen = BLOCKS
    else:
        chosen = [block for block in BLOCKS if block.default]
    with training.workplace() as place:
        paths = make_inputs(place)
        ended = sum(run_block(place, block, paths) for block in chosen)
        print(f"{len(chosen)} argument blocks, {ended} run to the end")


if __name__ == "__main__":
    sys.exit(main())
