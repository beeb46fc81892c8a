# A seal locates a flipped bit, is valid for a converted copy, and provides sums that sha256sum reads.
cp -r "$MS_SOURCE/tests/data/hf_llama_tiny" hf
msckpt verify hf; echo "unsealed $?"
msckpt seal hf; echo "seal $?"
(cd hf && sha256sum --quiet --strict -c SHA256SUMS); echo "sums $?"
msckpt verify hf; echo "sealed $?"
msckpt convert --load-dir hf --save-dir mg --to mg --tp 2 2> /dev/null; echo "convert $?"
msckpt verify mg; echo "foreign $?"
msckpt verify mg --seal hf/msckpt.seal.json; echo "copy $?"
size=$(stat -c %s hf/model.safetensors)
printf '\377' | dd of=hf/model.safetensors bs=1 seek=$((size - 3)) conv=notrunc status=none
msckpt verify hf; echo "flipped $?"
msckpt verify --json hf 2> /dev/null | python3 -c 'import json, sys; d = json.load(sys.stdin); print(d["ok"], d["format"], [f["tensor"] for f in d["findings"]])'
rm hf/config.json
msckpt verify hf; echo "gone $?"
cp -r "$MS_SOURCE/tests/data/hf_llama_tiny" gone && msckpt seal gone > /dev/null 2>&1 && rm gone/config.json
msckpt verify gone; echo "config $?"
cp -r "$MS_SOURCE/tests/data/hf_llama_tiny_sharded" shards && msckpt seal shards > /dev/null 2>&1 && rm shards/model-00002-of-*
msckpt verify shards; echo "shard $?"
msckpt seal mg > /dev/null 2>&1 && rm mg/release/mp_rank_01/model_optim_rng.pt
msckpt verify mg; echo "rank $?"
