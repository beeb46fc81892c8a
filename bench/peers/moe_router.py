#!/usr/bin/env python3
"""Routing and load-balancing losses of megatron-core's own functions, with autograd's gradients, as
tests/data/train/moe_router.json (tests/train/ops/moe_router_test.cpp, tests/train/ops/moe_balance_test.cpp).

  moe_router.py            # compares the stored file with the installed megatron-core
  moe_router.py --write    # writes it

Scores whose order a rounding error could change would compare nothing: the script ends with an error if two scores between
which a choice is made are closer than 1e-5. Needs megatron-core, torch and, for DeepSeek-V2's groups, DeepSeek-V4's scores
and Phi-3.5-MoE's sparse mixer, transformers (exit 77 without).
"""
import json
import pathlib
import sys
import unittest.mock
import warnings

import peers

peers.need("torch", "megatron", "transformers")
warnings.simplefilter("ignore")

import torch  # noqa: E402
from megatron.core.transformer.moe import moe_utils  # noqa: E402
from transformers.models.deepseek_v2.configuration_deepseek_v2 import DeepseekV2Config  # noqa: E402
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2TopkRouter  # noqa: E402
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config  # noqa: E402
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4TopKRouter  # noqa: E402
from transformers.models.phimoe.modeling_phimoe import sparsemixer  # noqa: E402

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "train" / "moe_router.json"
MARGIN = 1e-5
SMALL = {"tokens": 12, "experts": 8, "topk": 2}
# What differs from: softmax of the chosen, no groups, factor 1, no bias, no capacity, one sample, no losses.
CASES = {
    "softmax of the chosen": {},
    "one expert": {"topk": 1},
    "all experts": {"topk": 8},
    "softmax of all": {"pre_softmax": True, "topk": 3, "scaling_factor": 1.5},
    "one expert, softmax of all": {"pre_softmax": True, "topk": 1},
    "softmax of all in groups": {"pre_softmax": True, "topk": 4, "num_groups": 4, "group_topk": 2},
    "softmax of the chosen in groups": {"topk": 4, "num_groups": 4, "group_topk": 2},
    "sigmoid": {"score_function": "sigmoid", "topk": 3, "scaling_factor": 2.5},
    "sigmoid, one expert": {"score_function": "sigmoid", "topk": 1},
    "sigmoid in groups with a bias": {"score_function": "sigmoid", "topk": 4, "num_groups": 2, "group_topk": 1, "bias": True,
                                      "scaling_factor": 2.5},
    "sinkhorn": {"sinkhorn": True},
    "sinkhorn, one expert": {"sinkhorn": True, "topk": 1},
    "capacity by probs": {"capacity_factor": 0.75, "policy": "probs"},
    "capacity by position": {"capacity_factor": 0.75, "policy": "position"},
    "a capacity that drops none": {"capacity_factor": 8.0, "policy": "probs"},
    "capacity by probs, softmax of all": {"capacity_factor": 0.5, "policy": "probs", "pre_softmax": True, "topk": 3},
    "auxiliary loss": {"aux": 0.01},
    "auxiliary loss of sequences": {"seq_aux": 0.02, "batch": 3},
    "z loss": {"z": 0.001},
    "all losses": {"aux": 0.01, "seq_aux": 0.03, "z": 0.005, "batch": 2, "tokens": 14, "topk": 3},
    "losses of sigmoids": {"aux": 0.01, "seq_aux": 0.03, "batch": 2, "score_function": "sigmoid", "topk": 3},
    "the best groups": {"groups_by_best": True, "pre_softmax": True, "topk": 3, "num_groups": 4, "group_topk": 2,
                        "scaling_factor": 1.5},
    "softmax of all with a bias": {"pre_softmax": True, "topk": 3, "bias": True},
    "softmax of the chosen with a bias": {"topk": 3, "bias": True, "scaling_factor": 1.5},
    "auxiliary loss of a step": {"global_aux": 0.01, "topk": 3},
    "roots of softplus": {"score_function": "sqrtsoftplus", "topk": 3, "scaling_factor": 2.5},
    "roots of softplus with a bias": {"score_function": "sqrtsoftplus", "topk": 4, "bias": True, "tokens": 20},
    "roots of softplus of small logits": {"score_function": "sqrtsoftplus", "topk": 3, "shift": -9.0},
    "losses of roots of softplus": {"aux": 0.01, "seq_aux": 0.03, "z": 0.005, "batch": 2, "score_function": "sqrtsoftplus",
                                    "topk": 3},
    "sparse mixer": {"sparse_mixer": True, "draws": True, "tokens": 24, "spread": 0.03},
    "sparse mixer of high logits": {"sparse_mixer": True, "draws": True, "tokens": 24, "spread": 0.02, "shift": 1.0},
    "sparse mixer of low logits": {"sparse_mixer": True, "draws": True, "tokens": 24, "spread": 0.02, "shift": -1.0},
    "sparse mixer outside training": {"sparse_mixer": True, "tokens": 24, "spread": 0.03, "shift": 1.0},
}


def sinkhorn_routing(logits, topk):
    """TopKRouter.sinkhorn_load_balancing in training (router.py), which needs a module and its process groups."""
    with torch.no_grad():
        _, indices = torch.topk(moe_utils.sinkhorn(logits.float()), k=topk, dim=1)
    scores = torch.sigmoid(logits) if topk == 1 else torch.softmax(logits, dim=-1, dtype=torch.float32)
    chosen = torch.zeros_like(logits).int().scatter(1, indices, 1).bool()
    return scores * chosen, chosen


def by_position(routing_map, capacity):
    """torch.topk, which megatron-core calls for this policy, leaves the choice among equal elements open: the first ones."""
    return routing_map & (routing_map.int().cumsum(dim=0) <= capacity)


def by_best_groups(logits, case):
    """DeepseekV2TopkRouter's "group_limited_greedy" (transformers), whose module needs a whole configuration."""
    experts = logits.shape[1]
    config = DeepseekV2Config(hidden_size=experts, num_attention_heads=1, n_routed_experts=experts,
                              num_experts_per_tok=case["topk"], topk_method="group_limited_greedy",
                              n_group=case["num_groups"], topk_group=case["group_topk"], routed_scaling_factor=case["scaling_factor"])
    router = DeepseekV2TopkRouter(config)
    router.weight = torch.nn.Parameter(torch.eye(experts))
    _, weights, indices = router(logits)
    chosen = torch.zeros_like(logits).int().scatter(1, indices, 1).bool()
    return torch.zeros_like(logits).scatter(1, indices, weights), chosen


def with_bias_of_softmax(logits, bias, case):
    """MindSpeed-LLM's softmax_topk with an expert bias (mindspeed_llm/core/transformer/moe/router.py, topk_router_routing)."""
    scores = torch.softmax(logits, dim=-1)
    _, indices = torch.topk(scores + bias, k=case["topk"], dim=1)
    weights = torch.gather(scores, dim=1, index=indices)
    if not case.get("pre_softmax"):  # --norm-topk-prob
        weights = weights / weights.sum(dim=-1, keepdim=True)
    weights = weights * case.get("scaling_factor", 1.0)
    chosen = torch.zeros_like(logits).int().scatter(1, indices, 1).bool()
    return torch.zeros_like(logits).scatter(1, indices, weights), chosen


def roots_of_softplus(logits, bias, case):
    """DeepseekV4TopKRouter (transformers), whose scores later releases of megatron-core have under the same name."""
    experts = logits.shape[1]
    router = DeepseekV4TopKRouter(DeepseekV4Config(
        hidden_size=experts, num_attention_heads=1, n_routed_experts=experts, num_experts_per_tok=case["topk"],
        scoring_func="sqrtsoftplus", routed_scaling_factor=case.get("scaling_factor", 1.0)))
    router.weight = torch.nn.Parameter(torch.eye(experts))
    if bias is not None:
        router.e_score_correction_bias.copy_(bias)
    _, weights, indices = router(logits)
    chosen = torch.zeros_like(logits).int().scatter(1, indices, 1).bool()
    return torch.zeros_like(logits).scatter(1, indices, weights), chosen


def mixed(logits, draws):
    """PhimoeTopKRouter's sparsemixer (transformers) with these draws in place of torch's: of its two exponential ones
    and, between them, of a uniform one each. None: outside training. Weights and experts, [T, 2] each."""
    if draws is None:
        return sparsemixer(logits, jitter_eps=0.01, training=False)
    each = logits.shape[1] + 1
    exponential = iter([-draws[:, :each - 1].log(), -draws[:, each:2 * each - 1].log()])
    first, second = draws[:, each - 1:each], draws[:, 2 * each - 1:]
    with unittest.mock.patch.object(torch.Tensor, "exponential_", lambda _: next(exponential)), \
            unittest.mock.patch.object(torch, "rand_like", lambda _: first.clone()), \
            unittest.mock.patch.object(torch.Tensor, "uniform_", lambda _: second.clone()):
        return sparsemixer(logits, jitter_eps=0.01, training=True)


def margin_of_mixer(logits, draws):
    """The least distance of two noisy logits of which one is drawn, and of a logit from what is near enough to the highest."""
    logits, margins = logits.detach().double(), [1.0]
    taken = torch.zeros_like(logits).bool()
    _, chosen = mixed(logits.float(), draws)
    for i in range(2):
        left = logits.masked_fill(taken, -torch.inf)
        best = left.max(dim=1, keepdim=True).values
        distance = (best - logits) / torch.maximum(logits.abs(), best) - 0.02
        margins.append(distance.masked_fill(taken, 1).abs().min().item())
        noisy = left.masked_fill(distance > 0, -torch.inf)
        if draws is not None:
            first = i * (logits.shape[1] + 1)
            noisy = noisy - (-draws[:, first:first + logits.shape[1]].double().log()).log()
        order = noisy.sort(dim=1, descending=True).values
        margins.append((order[:, 0] - order[:, 1]).min().item())
        taken = taken.scatter(1, chosen[:, i:i + 1], True)
    return min(margins)


def margin_of(logits, bias, case):
    """The least distance of two scores between which something is chosen."""
    topk, score = case["topk"], logits.detach()
    if case.get("score_function") == "sigmoid":
        score = torch.sigmoid(score)
    elif case.get("score_function") == "sqrtsoftplus":
        score = torch.nn.functional.softplus(score).sqrt()
    elif case.get("pre_softmax") or bias is not None:
        score = torch.softmax(score, dim=-1)
    if case.get("sinkhorn"):
        score = moe_utils.sinkhorn(score)
    score = score + (bias if bias is not None else 0)
    margins = [1.0]
    if topk < score.shape[1]:
        order = score.sort(dim=1, descending=True).values
        margins.append((order[:, :-1] - order[:, 1:]).min().item())
    if case.get("group_topk"):
        of_each = 1 if case.get("groups_by_best") else topk // case["group_topk"]
        groups = score.view(len(score), case["num_groups"], -1).topk(of_each, dim=-1)[0].sum(dim=-1)
        order = groups.sort(dim=1, descending=True).values
        margins.append((order[:, :-1] - order[:, 1:]).min().item())
    return min(margins)


def route(logits, bias, draws, case):
    if case.get("sparse_mixer"):
        weights, indices = mixed(logits, draws)
        chosen = torch.zeros_like(logits).int().scatter(1, indices, 1).bool()
        return torch.zeros_like(logits).scatter(1, indices, weights), chosen
    if case.get("score_function") == "sqrtsoftplus":
        return roots_of_softplus(logits, bias, case)
    if case.get("sinkhorn"):
        return sinkhorn_routing(logits, case["topk"])
    if case.get("groups_by_best"):
        return by_best_groups(logits, case)
    if bias is not None and case.get("score_function") != "sigmoid":
        return with_bias_of_softmax(logits, bias, case)
    return moe_utils.topk_routing_with_score_function(
        logits, case["topk"], use_pre_softmax=case.get("pre_softmax", False), num_groups=case.get("num_groups"),
        group_topk=case.get("group_topk"), scaling_factor=case.get("scaling_factor"),
        score_function=case.get("score_function", "softmax"), expert_bias=bias)


def balance_losses(logits, case, mean):
    """The losses without coefficients, and the sum with them, as TopKRouter adds them up. mean: tokens of each expert, the
    mean of the step's micro-batches (TopKRouter._apply_global_aux_loss)."""
    tokens, experts, topk, batch = *logits.shape, case["topk"], case.get("batch", 1)
    if case.get("score_function") == "sqrtsoftplus":  # as later releases have it
        scores = torch.nn.functional.softplus(logits).sqrt()
        scores = scores / (scores.sum(dim=-1, keepdim=True) + 1e-20)
        chosen = torch.zeros_like(logits).int().scatter(1, scores.topk(topk, dim=1)[1], 1).bool()
    else:
        chosen, scores = moe_utils.compute_routing_scores_for_aux_loss(logits, topk, case.get("score_function", "softmax"))
    losses = {}
    if "global_aux" in case:
        losses["global_aux"] = moe_utils.switch_load_balancing_loss_func(scores, mean, tokens, topk, experts, 1.0)
    if "aux" in case:
        losses["aux"] = moe_utils.switch_load_balancing_loss_func(scores, chosen.sum(dim=0), tokens, topk, experts, 1.0)
    if "seq_aux" in case:
        length = tokens // batch
        losses["seq_aux"] = moe_utils.switch_load_balancing_loss_func(
            scores.reshape(length, -1), chosen.reshape(length, -1).sum(dim=0), length, topk, experts, 1.0) / batch
    if "z" in case:
        losses["z"] = moe_utils.z_loss_func(logits, 1.0)
    return losses, sum(case[name] * loss for name, loss in losses.items())


def digits(tensor):
    """Nine digits identify an fp32 number."""
    if tensor.dim() > 0:
        return [digits(one) for one in tensor]
    return float(f"{tensor.item():.9g}")


def run(number, case):
    case = {**SMALL, **case}
    generator = torch.Generator().manual_seed(100 + number)
    logits = torch.randn(case["tokens"], case["experts"], generator=generator) * case.get("spread", 1.5) + case.get("shift", 0)
    draws = torch.rand(len(logits), 2 * case["experts"] + 2, generator=generator).clamp_min(1e-9) if case.pop("draws", 0) else None
    logits.requires_grad_()
    bias = torch.randn(case["experts"], generator=generator) * 0.3 if case.pop("bias", False) else None
    if (margin_of_mixer(logits, draws) if case.get("sparse_mixer") else margin_of(logits, bias, case)) < MARGIN:
        sys.exit(f"case {number}: two scores are closer than {MARGIN}; choose another seed")
    result = {"case": case, "logits": digits(logits)}
    if bias is not None:
        result["bias"] = digits(bias)
    if draws is not None:
        result["draws"] = digits(draws)
    if {"aux", "seq_aux", "global_aux", "z"} & case.keys():
        mean = None
        if "global_aux" in case:
            earlier = torch.randn(2 * case["tokens"], case["experts"], generator=generator)
            step = torch.cat((earlier, logits.detach()))
            chosen, _ = moe_utils.compute_routing_scores_for_aux_loss(step, case["topk"], "softmax")
            mean = chosen.sum(dim=0) / 3  # of three micro-batches
            result["mean_of_step"] = digits(mean)
        losses, total = balance_losses(logits, case, mean)
        total.backward()
        return {**result, "losses": {name: digits(loss) for name, loss in losses.items()}, "dlogits": digits(logits.grad)}
    probs, routing_map = route(logits, bias, draws, case)
    if "capacity_factor" in case:
        capacity = moe_utils.get_capacity(case["tokens"] * case["topk"], case["experts"], case["capacity_factor"])
        if case["policy"] == "position":
            kept = by_position(routing_map, capacity)
            probs, routing_map = probs * kept, kept
        else:
            probs, routing_map = moe_utils.apply_router_token_dropping(probs, routing_map, case["topk"], case["capacity_factor"],
                                                                       drop_policy=case["policy"])
    dprobs = torch.randn(probs.shape, generator=generator)
    (probs * dprobs).sum().backward()
    return {**result, "probs": digits(probs), "map": routing_map.int().tolist(), "dprobs": digits(dprobs),
            "dlogits": digits(logits.grad)}


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return abs(a - b) <= 1e-6 * (1 + abs(b)) if isinstance(a, float) else a == b


def main():
    made = {name: run(number, case) for number, (name, case) in enumerate(CASES.items())}
    if "--write" in sys.argv[1:]:
        GOLDEN.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in made.items()) + "\n}\n")
        return
    stored = json.loads(GOLDEN.read_text())
    wrong = [name for name in made.keys() | stored.keys() if name not in made or name not in stored or
             not same(made[name], stored[name])]
    print(f"{GOLDEN.name}: {len(made)} cases, {len(wrong)} differ from the installed megatron-core {', '.join(wrong)}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
