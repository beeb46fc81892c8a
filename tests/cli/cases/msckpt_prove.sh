# A conversion is proved from its files, and a proof names the faults of another tool; damaged data is never "the same".
hf="$MS_SOURCE/tests/data/hf_llama_tiny_sharded"
msckpt convert --load-dir "$hf" --save-dir ms --prove 2> log; echo "convert $?"
grep -o 'proved: .*' log
ls ms.msckpt_report.json
msckpt convert --load-dir ms --save-dir mg --to mg --pp 2 --prove > /dev/null 2>&1; echo "mg $?"
msckpt verify mg --against "$hf" --prove 2> /dev/null; echo "verify $?"
python3 - "$hf" <<'PY'
import json, os, shutil, sys
shutil.copytree(sys.argv[1], "wrong")
index = json.load(open("wrong/model.safetensors.index.json"))["weight_map"]
names = ["model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"]
path = os.path.join("wrong", index[names[0]])
assert index[names[0]] == index[names[1]]
data = bytearray(open(path, "rb").read())
size = int.from_bytes(data[:8], "little")
header = json.loads(data[8:8 + size])
header[names[0]], header[names[1]] = header[names[1]], header[names[0]]
text = json.dumps(header, separators=(",", ":")).encode().ljust(size)
assert len(text) == size
data[8:8 + size] = text
open(path, "wb").write(data)
PY
msckpt verify wrong --against "$hf" --prove 2> log; echo "wrong $?"
grep -o 'msckpt.prove\] .*: swapped: .*' log
cp -r ms damaged
file=damaged/iter_0000000/rank_00000.h5
printf '\377' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") / 2)) conv=notrunc status=none
msckpt verify damaged --against ms 2> /dev/null; echo "damaged $?"
msckpt diff damaged ms 2> /dev/null; echo "diff $?"
msckpt diff --by-recorded-hashes damaged ms; echo "hashes $?"
msckpt verify ms --prove 2> /dev/null; echo "no source $?"
