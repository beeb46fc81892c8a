#!/usr/bin/env python3
"""Compares 50 AdamW (and SGD) steps of small models in mstrain with transformers and torch, from the same weights on the same samples.

  adamw.py [--keep FOLDER] [CASE ...]                        all CASES; exit 1 if one misses the bar
  adamw.py --write-golden tests/data/llama_adamw llama       a case, stored for tests/train/torch_golden_test.cpp
  adamw.py --write-golden tests/data/gpt2_adamw gpt2
  adamw.py --write-golden tests/data/llama_sgd sgd
  adamw.py --write-golden tests/data/mixtral_adamw mixtral
  adamw.py --write-golden tests/data/qwen3_moe_adamw qwen3_moe
  adamw.py --write-golden tests/data/qwen2_moe_adamw qwen2_moe
  adamw.py --write-golden tests/data/glm4_moe_adamw glm4_moe
  adamw.py --write-golden tests/data/olmoe_adamw olmoe
  adamw.py --write-golden tests/data/deepseek_v2_adamw deepseek_v2
  adamw.py --write-golden tests/data/deepseek_v3_adamw deepseek_v3
  adamw.py --write-golden tests/data/deepseek_v3_mtp_adamw deepseek_v3_mtp

transformers makes the model. mstrain trains it from its folder, and leaves the document, sample and shuffle indices, from
which this script cuts the same batches; `msckpt convert` converts the trained weights back. Bars: 1e-5 relative in the loss
of every step, 1e-4 relative L2 in every tensor of the final weights, except the keys' part of an attention bias that is not
rotated (GPT-2, half of GLM-4's): its exact gradient is zero, so Adam's update of it consists of rounding errors. Where a
model has experts, the least distance between the logits of the last expert that is chosen and of the next one (and between those
of the last group and the next one) is printed, over all tokens, layers and steps: rounding must not decide between them, so it is
at least 1e-4. deepseek_v3_mtp has layers of multi-token prediction, which transformers leaves out: they are written here,
around transformers' decoder layer. Needs
numpy, torch, transformers and safetensors (exit 77 without); MS_BIN is the folder of our programs.
"""
import argparse
import json
import math
import pathlib
import shutil
import sys
import tempfile

import peers

peers.need("numpy", "torch", "transformers", "safetensors", programs=("mstrain", "msckpt"))

import numpy  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

LOSS_BAR, WEIGHT_BAR = 1e-5, 1e-4
STEPS = 50
LEAST_MARGIN = 1e-4  # between the last expert of a choice and the next one
COMMON = {"micro-batch-size": 2, "global-batch-size": 4, "seq-length": 32, "lr": 1e-3, "weight-decay": 0.1, "clip-grad": 1.0,
          "adam-beta1": 0.9, "adam-beta2": 0.95, "adam-eps": 1e-8, "lr-decay-style": "constant", "lr-warmup-iters": 0,
          "lr-warmup-init": 0.0, "min-lr": 0.0, "seed": 1234}
SMALL = {"vocab_size": 259, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2}
LARGER = {"vocab_size": 1009, "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 4,
          "num_attention_heads": 8, "num_key_value_heads": 2}
GPT2_SMALL = {"vocab_size": 259, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "resid_pdrop": 0.0,
              "embd_pdrop": 0.0, "attn_pdrop": 0.0}
GEMMA2_SMALL = {**LARGER, "head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 9, "attn_logit_softcapping": 3.0,
                "final_logit_softcapping": 5.0, "pad_token_id": 1008}
TINY_MOE = {"vocab_size": 131, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "intermediate_size": 20}
LATENT = {"num_key_value_heads": 4, "kv_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5,
          "first_k_dense_replace": 1, "moe_intermediate_size": 12}
# name: family, model, flags in addition to COMMON
CASES = {
    "llama": ("Llama", SMALL, {"lr": 2e-3, "lr-decay-style": "cosine", "lr-warmup-iters": 5, "lr-warmup-init": 1e-5, "min-lr": 1e-4}),
    "gpt2": ("GPT2", GPT2_SMALL, {"lr": 6e-3, "lr-decay-style": "cosine", "lr-warmup-iters": 5, "min-lr": 1e-4}),
    "sgd": ("Llama", SMALL, {"optimizer": "sgd", "sgd-momentum": 0.9, "lr": 0.2, "weight-decay": 0.01, "lr-decay-style": "cosine",
                             "lr-warmup-iters": 5}),
    "constant": ("Llama", LARGER, {"adam-beta2": 0.999}),
    "tied": ("Llama", {**LARGER, "tie_word_embeddings": True, "rms_norm_eps": 1e-5, "rope_parameters": {
        "rope_type": "default", "rope_theta": 50000.0}}, {"clip-grad": 0.3, "lr-decay-style": "linear", "lr-warmup-iters": 3}),
    "heads": ("Llama", {**LARGER, "head_dim": 12, "num_key_value_heads": 8},
              {"micro-batch-size": 4, "global-batch-size": 8, "clip-grad": 100.0}),
    "qwen3": ("Qwen3", {**LARGER, "head_dim": 16}, {"lr": 5e-4}),
    "mistral": ("Mistral", {**LARGER, "sliding_window": 7}, {}),
    "gemma2": ("Gemma2", GEMMA2_SMALL, {}),
    "phi3": ("Phi3", {**LARGER, "pad_token_id": 1008}, {}),
    "nemotron": ("Nemotron", {**LARGER, "head_dim": 16}, {}),
    "glm4": ("Glm4", {**LARGER, "head_dim": 16, "pad_token_id": 1008}, {}),
    "mixtral": ("Mixtral", {**TINY_MOE, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}, {}),
    "qwen3_moe": ("Qwen3Moe", {**TINY_MOE, "head_dim": 8, "num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": True,
                               "moe_intermediate_size": 12}, {}),
    "qwen2_moe": ("Qwen2Moe", {**TINY_MOE, "num_hidden_layers": 3, "mlp_only_layers": [1], "num_experts": 5,
                               "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 18},
                  {}),
    # One norm over all heads of q, one over those of k.
    "olmoe": ("Olmoe", {**TINY_MOE, "intermediate_size": 12, "num_experts": 6, "num_experts_per_tok": 3, "pad_token_id": 130}, {}),
    # Its bias, which no gradient moves, stays as it is.
    "glm4_moe": ("Glm4Moe", {**TINY_MOE, "head_dim": 8, "first_k_dense_replace": 1, "n_routed_experts": 6,
                             "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 12, "use_qk_norm": True,
                             "routed_scaling_factor": 1.5, "attention_bias": False, "num_nextn_predict_layers": 0},
                 {"moe-router-bias-update-rate": 0}),
    # Without a vector of queries; YaRN, whose magnitude multiplies the scores too.
    "deepseek_v2": ("DeepseekV2", {**TINY_MOE, **LATENT, "q_lora_rank": None, "n_routed_experts": 6, "num_experts_per_tok": 2,
                                   "topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2, "n_shared_experts": 2,
                                   "routed_scaling_factor": 1.5, "rope_parameters": {
                                       "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32, "beta_slow": 1,
                                       "original_max_position_embeddings": 16, "mscale": 0.7, "mscale_all_dim": 1.1}}, {}),
    "deepseek_v3_mtp": ("DeepseekV3", {**TINY_MOE, **LATENT, "q_lora_rank": 14, "n_routed_experts": 6, "num_experts_per_tok": 2,
                                       "n_group": 2, "topk_group": 1, "n_shared_experts": 1, "routed_scaling_factor": 1.5,
                                       "num_nextn_predict_layers": 2},
                        {"moe-router-bias-update-rate": 0, "mtp-loss-scaling-factor": 0.3}),
    "deepseek_v3": ("DeepseekV3", {**TINY_MOE, **LATENT, "q_lora_rank": 14, "n_routed_experts": 6, "num_experts_per_tok": 2,
                                   "n_group": 2, "topk_group": 1, "n_shared_experts": 1, "routed_scaling_factor": 1.5,
                                   "num_nextn_predict_layers": 0}, {"moe-router-bias-update-rate": 0}),
}


SEEDS = {"Qwen2Moe": 24, "Glm4Moe": 57, "DeepseekV2": 1, "DeepseekV3": 3, "DeepseekV3 with mtp": 8, "Olmoe": 1}  # others 20: no two scores of a router that a choice is between are close


class MtpLayer(torch.nn.Module):
    """DeepSeek-V3's (arXiv 2412.19437, section 2.2), with the names of its checkpoints; transformers has none."""

    def __init__(self, config, index):
        super().__init__()
        modeling = transformers.models.deepseek_v3.modeling_deepseek_v3
        size, eps = config.hidden_size, config.rms_norm_eps
        self.enorm, self.hnorm = modeling.DeepseekV3RMSNorm(size, eps), modeling.DeepseekV3RMSNorm(size, eps)
        self.eh_proj = torch.nn.Linear(2 * size, size, bias=False)
        self.layer = modeling.DeepseekV3DecoderLayer(config, index)
        self.shared_head = torch.nn.ModuleDict({"norm": modeling.DeepseekV3RMSNorm(size, eps)})

    def forward(self, hidden, tokens, model):
        embedded = model.model.embed_tokens(tokens)
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(hidden)], dim=-1))
        positions = torch.arange(tokens.shape[1]).unsqueeze(0)
        unseen = torch.full((tokens.shape[1],) * 2, -torch.inf, dtype=x.dtype).triu(1)
        x = self.layer(x, attention_mask=unseen[None, None], position_ids=positions,
                       position_embeddings=model.model.rotary_emb(x, positions))
        return self.shared_head["norm"](x)


def add_mtp(model):
    """Gives the model such layers, in model.mtp."""
    config = model.config
    kinds = getattr(config, "mlp_layer_types", None)
    if kinds is not None and len(kinds) == config.num_hidden_layers:
        config.mlp_layer_types = list(kinds) + [kinds[-1]] * config.num_nextn_predict_layers
    model.mtp = torch.nn.ModuleList(MtpLayer(config, config.num_hidden_layers + k)
                                    for k in range(config.num_nextn_predict_layers))
    if kinds is not None:
        config.mlp_layer_types = list(kinds)


def mtp_names(model):
    """Of each of their tensors, its name here and in a checkpoint."""
    for k, layer in enumerate(model.mtp):
        place = f"model.layers.{model.config.num_hidden_layers + k}."
        for name in layer.state_dict():
            yield f"mtp.{k}.{name}", place + name.removeprefix("layer.")


def save_model(model, folder):
    """As save_pretrained, but with the layers that transformers does not know."""
    layers = model._modules.pop("mtp", None)
    model.save_pretrained(folder)
    if layers is None:
        return
    model.mtp = layers
    tensors = load_file(folder / "model.safetensors")
    state = model.state_dict()
    for name, stored in mtp_names(model):
        value = state[name].contiguous()
        parts = unpacked_experts(stored, value)
        tensors.update({part: tensor.to(torch.float32).contiguous() for part, tensor in parts.items()})
    for k in range(len(layers)):
        place = f"model.layers.{model.config.num_hidden_layers + k}."
        tensors[place + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors[place + "shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def unpacked_experts(name, value):
    """transformers stacks the experts of a layer; checkpoints have each of them."""
    if name.endswith("experts.gate_up_proj"):
        parts = {}
        for e, one in enumerate(value):
            gate, up = one.chunk(2, dim=0)
            place = name.replace("experts.gate_up_proj", f"experts.{e}.")
            parts |= {place + "gate_proj.weight": gate, place + "up_proj.weight": up}
        return parts
    if name.endswith("experts.down_proj"):
        return {name.replace("experts.down_proj", f"experts.{e}.down_proj.weight"): one for e, one in enumerate(value)}
    return {name: value}


def load_mtp(model, folder):
    """The layers of a folder that save_model has written."""
    add_mtp(model)
    tensors, state = load_file(folder / "model.safetensors"), {}
    for name, stored in mtp_names(model):
        if stored.endswith("experts.gate_up_proj"):
            experts = range(model.config.n_routed_experts)
            place = stored.replace("gate_up_proj", "{}.{}_proj.weight")
            state[name] = torch.stack([torch.cat([tensors[place.format(e, part)] for part in ("gate", "up")]) for e in experts])
        elif stored.endswith("experts.down_proj"):
            place = stored.replace("down_proj", "{}.down_proj.weight")
            state[name] = torch.stack([tensors[place.format(e)] for e in range(model.config.n_routed_experts)])
        else:
            state[name] = tensors[stored]
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and not [name for name in missing if name.startswith("mtp.")], (missing, unexpected)


def mtp_losses(model, hidden, tokens, labels):
    """Of each layer: of position i the token i + k + 1, from the token i + k. Past the end there is nothing to predict."""
    losses = []
    for k, layer in enumerate(model.mtp, start=1):
        moved = torch.nn.functional.pad(tokens[:, k:], (0, k))
        hidden = layer(hidden, moved, model)
        logits = model.lm_head(hidden)[:, :-k]
        losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, k:].flatten()))
    return losses


def make_model(family, shape, folder):
    torch.manual_seed(SEEDS.get(family + (" with mtp" if shape.get("num_nextn_predict_layers") else ""), 20))
    shape = shape if family == "GPT2" else dict(shape, max_position_embeddings=64)
    config = getattr(transformers, family + "Config")(**shape)
    model = getattr(transformers, family + ("LMHeadModel" if family == "GPT2" else "ForCausalLM"))(config)
    if shape.get("num_nextn_predict_layers", 0) > 0:
        add_mtp(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = ("norm" in name or ".ln_" in name) and not name.endswith("bias") and family not in ("Gemma2", "Nemotron")
            is_router = name.endswith("mlp.gate.weight")  # whose logits must be apart
            router_std = 0.3 if family in ("Glm4Moe", "DeepseekV3") else 1.0  # sigmoids of large logits are all alike
            parameter.normal_(1.0 if is_norm else 0.0, router_std if is_router else 0.1)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0.0, 0.2)
    save_model(model, folder)


def without_free_keys(name, tensor, shape):
    """A tensor without the part that has no gradient: softmax ignores what is added to all keys and not rotated."""
    if name.endswith("attn.c_attn.bias"):
        third = len(tensor) // 3
        return torch.cat([tensor[:third], tensor[2 * third:]])
    if name.endswith("k_proj.bias") and "pad_token_id" in shape:  # GLM-4 rotates half of a head
        return tensor.view(-1, 2, shape["head_dim"] // 2)[:, 0]
    return tensor


def make_documents(vocab):
    """Documents of uneven length, mostly a fixed walk, so that there is something to learn."""
    random = numpy.random.RandomState(5)
    documents = []
    for length in random.randint(20, 200, size=20):
        document = [random.randint(vocab)]
        while len(document) < length:
            document.append(random.randint(vocab) if random.randint(8) == 0 else (document[-1] * 5 + 7) % vocab)
        documents.append(numpy.array(document))
    return documents


def train_ours(folder, flags):
    """The loss of every step, and the trained weights under their Hugging Face names."""
    options = [part for name, value in flags.items() for part in (f"--{name}", value)]
    checkpoint = peers.run("mstrain", "--load", folder / "hf", "--use-checkpoint-args", "--finetune", "--train-iters", STEPS,
                           "--train-data-path", folder / "tokens", "--data-cache-path", folder / "cache", "--eval-iters", 0,
                           "--save", folder / "save", "--metrics-path", folder / "metrics.jsonl", "--peak-tflops", 1, *options)
    peers.run("msckpt", "convert", "--load-dir", checkpoint, "--save-dir", folder / "trained", "--drop-optimizer")
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return steps, load_file(folder / "trained" / "model.safetensors")


def batches(folder, documents, flags):
    """The samples in the order in which mstrain drew them: [global batch, seq_length + 1] for each step."""
    document_index, sample_index, shuffle_index = (
        numpy.load(next((folder / "cache").glob(f"*-train-{kind}_index.npy"))) for kind in ("document", "sample", "shuffle"))
    flat = numpy.concatenate([documents[document] for document in document_index])
    begins = numpy.concatenate([[0], numpy.cumsum([len(documents[document]) for document in document_index])])
    size, seq = flags["global-batch-size"], flags["seq-length"]
    for step in range(STEPS):
        rows = []
        for drawn in shuffle_index[step * size: (step + 1) * size]:
            position, offset = sample_index[drawn]
            first = begins[position] + offset
            rows.append(flat[first: first + seq + 1])
        yield torch.from_numpy(numpy.stack(rows))


def learning_rate(step, flags):
    """Megatron's OptimizerParamScheduler, for the update after `step` completed ones."""
    peak, low, warmup = flags["lr"], flags["min-lr"], flags["lr-warmup-iters"]
    if warmup > 0 and step <= warmup:
        return flags["lr-warmup-init"] + (peak - flags["lr-warmup-init"]) * step / warmup
    if flags["lr-decay-style"] == "constant":
        return peak
    ratio = (step - warmup) / (STEPS - warmup)
    return low + (peak - low) * (1 - ratio if flags["lr-decay-style"] == "linear" else 0.5 * (1 + math.cos(math.pi * ratio)))


def train_theirs(folder, documents, flags):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32)
    factor = flags.get("mtp-loss-scaling-factor", 0)
    if factor > 0:
        load_mtp(model, folder / "hf")
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": flags["weight-decay"]},
              {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0}]
    if flags.get("optimizer") == "sgd":  # as megatron/core/optimizer/__init__.py makes it
        optimizer = torch.optim.SGD(groups, momentum=flags["sgd-momentum"])
    else:
        optimizer = torch.optim.AdamW(groups, betas=(flags["adam-beta1"], flags["adam-beta2"]), eps=flags["adam-eps"])
    losses, norms, margins, further = [], [], [], []
    for module in model.modules():
        if type(module).__name__.endswith("TopKRouter"):
            module.register_forward_hook(lambda router, _, result: margins.append(margin_of(result[0], router.top_k)))
        elif type(module).__name__.endswith("TopkRouter"):  # of softmax, or of sigmoids with a bias; of groups
            module.register_forward_hook(lambda router, _, result: margins.append(grouped_margin_of(router, result[0])))
    for step, rows in enumerate(batches(folder, documents, flags)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, flags)
        optimizer.zero_grad()
        tokens, labels = rows[:, :-1], rows[:, 1:]
        hidden = model.model(input_ids=tokens).last_hidden_state if factor > 0 else None
        logits = model(input_ids=tokens).logits if hidden is None else model.lm_head(hidden)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        more = mtp_losses(model, hidden, tokens, labels) if factor > 0 else []
        (loss + sum(factor / len(more) * one for one in more)).backward()
        further.append([one.item() for one in more])
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), flags["clip-grad"]).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, further, model, min(margins, default=None)


def margin_of(logits, topk):
    order = logits.detach().sort(dim=-1, descending=True).values
    return (order[..., topk - 1] - order[..., topk]).min().item()


def grouped_margin_of(router, logits):
    bias = getattr(router, "e_score_correction_bias", None)
    scores = logits if bias is None else logits.sigmoid() + bias  # softmax keeps the order
    groups = getattr(router, "num_group", None) or 1
    if groups == 1:
        return margin_of(scores, router.top_k)
    parts = scores.unflatten(-1, (groups, -1))
    of_groups = parts.topk(1 if bias is None else 2, dim=-1).values.sum(dim=-1)
    left_out = torch.ones_like(of_groups).scatter(-1, of_groups.topk(router.topk_group, dim=-1).indices, 0).bool()
    kept = parts.masked_fill(left_out.unsqueeze(-1), -1e9).flatten(-2)
    return min(margin_of(of_groups, router.topk_group), margin_of(kept, router.top_k))


def check(name, folder):
    family, shape, own = CASES[name]
    flags = {**COMMON, **own}
    folder.mkdir(parents=True)
    make_model(family, shape, folder / "hf")
    # transformers gives the padding token's embedding no gradient; the token does not occur.
    documents = make_documents(shape["vocab_size"] - (1 if "pad_token_id" in shape else 0))
    peers.write_indexed_dataset(folder / "tokens", documents)
    steps, weights = train_ours(folder, flags)
    losses, norms, further, model, margin = train_theirs(folder, documents, flags)
    save_model(model, folder / "torch")
    stored = {"flags": flags, "steps": STEPS, "losses": losses, "grad_norms": norms}
    if further[0]:
        stored["mtp_losses"] = further
    (folder / "reference.json").write_text(json.dumps(stored) + "\n")
    reference = load_file(folder / "torch" / "model.safetensors")
    assert reference.keys() == weights.keys(), reference.keys() ^ weights.keys()
    loss_error = max(abs(ours["lm loss"] - loss) / loss for ours, loss in zip(steps, losses, strict=True))
    if further[0]:
        loss_error = max(loss_error, max(abs(ours[f"mtp_{k} loss"] - loss) / loss
                                         for ours, more in zip(steps, further, strict=True) for k, loss in enumerate(more, start=1)))
    norm_error = max(abs(ours["grad norm"] - norm) / norm for ours, norm in zip(steps, norms, strict=True))
    compared = {key: (without_free_keys(key, weights[key], shape).double(), without_free_keys(key, tensor, shape).double())
                for key, tensor in reference.items()}
    weight_error, worst = max(((ours - theirs).norm().item() / theirs.norm().item(), key)
                              for key, (ours, theirs) in compared.items())
    good = loss_error <= LOSS_BAR and weight_error <= WEIGHT_BAR and (margin is None or margin >= LEAST_MARGIN)
    print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, clipped in {sum(n > flags['clip-grad'] for n in norms)} of "
          f"{STEPS} steps | largest relative error: loss {loss_error:.2e}, grad norm {norm_error:.2e}, weights "
          f"{weight_error:.2e} ({worst}){'' if margin is None else f' | least margin of a choice: {margin:.1e}'}{'' if good else ' | MISSES THE BAR'}", flush=True)
    return good


def write_golden(folder, target):
    target.mkdir(parents=True, exist_ok=True)
    for name in ("hf", "torch"):
        shutil.rmtree(target / name, ignore_errors=True)
        shutil.copytree(folder / name, target / name, copy_function=shutil.copyfile)
    for name in ("tokens.bin", "tokens.idx", "reference.json"):
        shutil.copyfile(folder / name, target / name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=pathlib.Path, help="work here and leave the files")
    parser.add_argument("--write-golden", type=pathlib.Path, metavar="FOLDER", help="freeze the one case there")
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE", help=", ".join(CASES))
    arguments = parser.parse_args()
    if arguments.write_golden and len(arguments.cases) != 1:
        parser.error("--write-golden takes one case")
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()  # of tensors of layers that it does not have
    torch.set_num_threads(1)  # the model is small, and threads that wait for each other starve on a busy machine
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.keep or pathlib.Path(temporary)
        good = [check(name, work / name) for name in arguments.cases]
        if arguments.write_golden and all(good):
            write_golden(work / arguments.cases[0], arguments.write_golden)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
