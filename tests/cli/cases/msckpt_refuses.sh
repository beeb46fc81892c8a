# Invalid command lines: one line, exit 2, nothing written.
"$MS_BUILD/tests/make_checkpoint" a 1 1 1 0 100
msckpt; echo "$?"
msckpt verify --bogus a; echo "$?"
msckpt inspect --bogus; echo "$?"
msckpt reshard --load-dir a; echo "$?"
msckpt reshard --load-dir a --save-dir a --target-tensor-parallel-size 2; echo "$?"
msckpt reshard --load-dir a/iter_0000100 --save-dir ./a --target-tensor-parallel-size 2; echo "$?"
msckpt reshard --load-dir a --save-dir b --target-tensor-parallel-size 3; echo "$?"
msckpt reshard --load-dir a --save-dir b --target-pipeline-parallel-size 0; echo "$?"
msckpt reshard --load-dir a --save-dir b --mem 1; echo "$?"
msckpt diff a; echo "$?"
model="$MS_SOURCE/tests/data/hf_llama_tiny"
msckpt convert --load-dir "$model" --save-dir b --target-tensor-paralel-size=2; echo "$?"
msckpt convert --load-dir "$model" --save-dir b --target-tensor-parallel-size 3; echo "$?"
msckpt convert --load-dir "$model" --save-dir "$model/config.json"; echo "$?"
msckpt convert --load-dir "$MS_SOURCE/tests/data/megatron/qk_norm_tp2_bf16/iter_0000007/mp_rank_00" --save-dir b; echo "$?"
mkdir bare && cp "$model/config.json" bare && msckpt convert --load-dir bare --save-dir b; echo "$?"; rm -r bare
msckpt inspect nowhere; echo "$?"
ls
