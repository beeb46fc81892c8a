# Flight records of PyTorch jobs that hang: which rank is at fault. tests/data/flight/make_dumps.py makes them.
set -euo pipefail
dumps=$CASE_DIR/../../data/flight
for job in gloo_stuck gloo_mismatch gloo_dead nccl_pipeline nccl_shape nccl_stuck; do
  echo "== $job"
  cp -r "$dumps/$job" .
  msprof flight $job
done
echo "== the last operations of each rank"
msprof flight nccl_stuck --operations 2 | tail -8
echo "== JSON"
msprof flight --json gloo_dead --world-size 4 | grep -o '"result".*'
echo "== a record that cannot be read is evidence too"
mkdir damaged
cp gloo_stuck/* damaged/
head -c 200 gloo_stuck/nccl_trace_rank_1 > damaged/nccl_trace_rank_1
msprof flight damaged | head -2
msprof flight --strict damaged > /dev/null || echo "exit $?"
printf 'cos\nsystem\n(S"touch hit"\ntR.' > evil_0
msprof flight evil_0 || echo "exit $?"
python3 - << 'EOF'
import pickle, os
class Evil:
    def __reduce__(self): return (os.system, ("touch hit",))
pickle.dump({"version": "2.10", "entries": [Evil()], "pg_config": {}}, open("evil_1", "wb"), protocol=2)
EOF
msprof flight evil_1 || echo "exit $?"
test ! -e hit
msprof flight nothing || echo "exit $?"
mkdir empty
msprof flight empty || echo "exit $?"
