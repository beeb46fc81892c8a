#!/usr/bin/env python3
"""Writes rank_groups.json: the process groups that Megatron's RankGenerator makes of small layouts. Needs megatron-core; one torch
process, no ranks."""
import json
import os

from megatron.core.parallel_state import RankGenerator

ORDERS = ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "pp-dp-tp-cp-ep"]
SIZES = [(2, 1, 2, 2), (1, 1, 3, 4), (2, 2, 3, 1), (2, 3, 1, 2), (1, 1, 1, 1), (4, 2, 2, 2)]  # tp, cp, dp, pp
TOKENS = ["tp", "cp", "dp", "pp", "tp-pp", "dp-cp", "tp-cp", "tp-dp-cp", "tp-dp"]
# tp, cp, dp, pp and etp, ep, of the order in which Megatron numbers experts and stages alike.
EXPERTS = [((2, 1, 4, 2), (1, 4)), ((2, 1, 4, 2), (2, 2)), ((2, 2, 2, 2), (1, 8)), ((1, 1, 6, 2), (1, 3)), ((4, 1, 2, 1), (2, 2))]
EXPERT_TOKENS = ["tp", "ep", "dp", "tp-ep", "ep-dp"]


def main():
    rows = []
    for order in ORDERS:
        for tp, cp, dp, pp in SIZES:
            generator = RankGenerator(tp=tp, ep=1, dp=dp, pp=pp, cp=cp, order=order)
            rows.append({"order": order, "tp": tp, "cp": cp, "dp": dp, "pp": pp,
                         "groups": {token: generator.get_ranks(token) for token in TOKENS}})
    for (tp, cp, dp, pp), (etp, ep) in EXPERTS:
        generator = RankGenerator(tp=etp, ep=ep, dp=tp * cp * dp // (etp * ep), pp=pp, cp=1, order=ORDERS[0])
        rows.append({"order": ORDERS[0], "tp": tp, "cp": cp, "dp": dp, "pp": pp, "etp": etp, "ep": ep,
                     "expert_groups": {token: generator.get_ranks(token) for token in EXPERT_TOKENS}})
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank_groups.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
