# The load of experts and what it costs: of routing traces that Megatron's tracer wrote (tests/data/routing), of traces of
# two ranks, of metrics, and of files that are none.
set -euo pipefail
cp -r "$CASE_DIR/../../data/routing" .
routing=routing/megatron
msprof experts $routing
echo "== JSON has the counts of the routing maps"
msprof experts $routing --json --num-experts 8 > told.json
python3 - <<'PYTHON'
import json
told = json.load(open("told.json"))["result"]["experts"]
want = json.load(open("routing/tokens.json"))
layers = {"layers.0": (0, None), "layers.1": (1, None), "mtp_model_layer": (0, 0)}
for name, steps in want.items():
    key = next(layers[part] for part in reversed(layers) if part in name)
    layer = next(l for l in told["layers"] if (l["layer"], l["mtp"]) == key)
    counts = [rank for step in steps.values() for rank in step.values()]
    assert layer["tokens"] == [sum(of) for of in zip(*counts)], name
    assert abs(layer["max_of_mean"] - max(layer["tokens"]) / 24) < 1e-6, name
assert [(s["step"], s["tokens"]) for s in told["steps"]] == [(5, 288), (6, 288)], told["steps"]
print(told["source"], told["layers"][0]["dead"])
PYTHON
echo "== one step, four expert-parallel ranks"
msprof experts $routing --step 6 --expert-model-parallel-size 4 --num-experts 8 --top 3
echo "== traces with times"
events() { # of a rank, one a line: name, start and end in us; a counter has its value in place of an end
  while read -r what layer start end; do
    case $what in
      moe-*) printf '{"ph": "X", "cat": "user_annotation", "name": "%s layer %d", "ts": %d, "dur": %d, "pid": 1, "tid": 1},\n' "$what" "$layer" "$start" $((end - start))
        printf '{"ph": "X", "cat": "kernel", "name": "alltoall", "ts": %d, "dur": %d, "pid": 0, "tid": 20, "args": {"device": 0, "stream": 20, "Collective name": "alltoall", "Process Group Name": "ep", "Process Group Ranks": "[0, 1]", "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Float", "Seq": %d}},\n' "$start" $((end - start)) $((++seq)) ;;
      gemm) printf '{"ph": "X", "cat": "kernel", "name": "gemm", "ts": %d, "dur": %d, "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}},\n' "$start" $((end - start)) ;;
      *) printf '{"ph": "C", "name": "moe layer %d expert %d rows", "ts": %d, "pid": 1, "args": {"value": %d}},\n' "$layer" "$what" "$start" "$end" ;;
    esac
  done
}
trace() {
  local seq=0
  printf '{"distributedInfo": {"rank": %d, "world_size": 2}, "baseTimeNanoseconds": 1700000000000000000, "traceEvents": [\n' "$1"
  events
  printf '{"ph": "X", "name": "ProfilerStep#3", "ts": 0, "dur": 4000, "pid": 1, "tid": 1, "cat": "user_annotation"}]}\n'
}
mkdir traces
trace 0 > traces/rank_0.json <<'END'
moe-dispatch 0 100 140
gemm 0 140 1140
moe-combine 0 1140 1180
moe-dispatch 1 1300 1340
gemm 1 1340 1640
moe-combine 1 1640 1680
0 0 3900 90
1 0 3900 0
0 1 3900 20
1 1 3900 30
END
trace 1 > traces/rank_1.json <<'END'
moe-dispatch 0 120 140
gemm 0 140 240
moe-combine 0 240 1180
moe-dispatch 1 1290 1340
gemm 1 1340 1630
moe-combine 1 1630 1680
2 0 3900 6
3 0 3900 4
2 1 3900 25
3 1 3900 25
END
msprof experts traces
msprof experts traces --csv out
cat out/expert_waits.csv
msprof report traces -o report.html
grep -o '"experts":{.*}' report.html | grep -o '"load":"[^"]*"'
echo "== metrics"
echo '{"iteration":1,"consumed_train_samples":4,"experts":[{"layer":1,"tokens":[9,3,0,0],"dropped":0}],"arena":{}}' > metrics.jsonl
msprof experts metrics.jsonl --expert-model-parallel-size 2 --top 1
echo "== bad input"
msprof experts $routing --num-experts 4 || echo "exit $?"
msprof experts $routing --expert-model-parallel-size 3 || echo "exit $?"
msprof experts $routing/router_trace_rank0.jsonl traces || echo "exit $?"
head -c 2000 $routing/router_trace_rank0.jsonl > cut.jsonl
msprof experts cut.jsonl --strict --top 1 > /dev/null || echo "exit $?"
echo '{"step": 0, "layer": 1, "rank": 0, "num_tokens": 2, "topk": 1, "top_indices": [[1]]}' > wrong.jsonl
msprof experts wrong.jsonl || echo "exit $?"
msprof experts nothing || echo "exit $?"
"$MS_BUILD/tests/make_trace" dense > made
msprof experts dense
