# Two stages with mstrain's annotations: two chunks in a V, two micro-batches, whose weights' gradients are apart.
set -euo pipefail
events() { # of a rank, one line each: name, start and end in us; for a message also its peer
  while read -r name start end peer; do
    printf '{"ph": "X", "name": "%s", "ts": %d, "dur": %d, "pid": ' "$name" "$start" $((end - start))
    case $name in
      send) printf '0, "tid": 20, "cat": "kernel", "args": {"device": 0, "stream": 20, "Process Group Name": "pp", "Process Group Ranks": "[0, 1]", "Collective name": "send", "Src Rank": %d, "Dst Rank": %d}},\n' "$1" "$peer" ;;
      recv) printf '0, "tid": 20, "cat": "kernel", "args": {"device": 0, "stream": 20, "Process Group Name": "pp", "Process Group Ranks": "[0, 1]", "Collective name": "recv", "Src Rank": %d, "Dst Rank": %d}},\n' "$peer" "$1" ;;
      *) printf '1, "tid": 2, "cat": "user_annotation"},\n{"ph": "X", "name": "gemm", "ts": %d, "dur": %d, "pid": 0, "tid": 7, "cat": "kernel", "args": {"device": 0, "stream": 7}},\n' "$start" $((end - start)) ;;
    esac
  done
}
trace() {
  printf '{"distributedInfo": {"rank": %d, "world_size": 2}, "baseTimeNanoseconds": 1700000000000000000, "traceEvents": [\n' "$1"
  events "$1"
  printf '{"ph": "X", "name": "iteration 7", "ts": 0, "dur": 1000, "pid": 1, "tid": 2, "cat": "user_annotation"}]}\n'
}
mkdir traces
trace 0 > traces/rank_0.json <<'EOF'
forward-microbatch 10 110
send 105 120 1
forward-microbatch 110 210
send 205 220 1
recv 210 320 1
forward-microbatch 320 420
backward-input-microbatch 420 520
send 515 530 1
backward-weight-microbatch 520 530
recv 530 545 1
forward-microbatch 550 650
backward-input-microbatch 650 750
send 745 760 1
backward-weight-microbatch 750 760
recv 760 790 1
backward-input-microbatch 790 890
backward-weight-microbatch 890 895
recv 895 900 1
backward-input-microbatch 900 950
backward-weight-microbatch 950 990
EOF
trace 1 > traces/rank_1.json <<'EOF'
recv 100 120 0
forward-microbatch 120 220
forward-microbatch 220 320
send 315 330 0
recv 320 330 0
forward-microbatch 330 430
forward-microbatch 430 530
send 525 545 0
recv 530 540 0
backward-input-microbatch 540 640
backward-input-microbatch 640 740
send 735 790 0
recv 740 765 0
backward-input-microbatch 765 865
backward-input-microbatch 865 900
send 895 900 0
backward-weight-microbatch 900 910
backward-weight-microbatch 910 920
backward-weight-microbatch 920 930
backward-weight-microbatch 930 940
EOF
msprof pipeline traces
msprof pipeline traces --json > told.json
grep -o '"messages":.*"chunks":[0-9]*' told.json
grep -o '{"action":"W","microbatch":[0-9],"chunk":[0-9]' told.json
echo "one rank"
msprof pipeline traces/rank_1.json
echo "without annotations"
sed -i '/microbatch/d' traces/*.json
msprof pipeline traces
