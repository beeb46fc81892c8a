# A flag without its value never takes the next flag for it, in any of the binaries: one line, exit 2, nothing written.
# The usual cause is an empty shell variable.
unset CKPT
try() { "$@"; echo "$?"; }
try mstrain --save $CKPT --bf16
try mstrain --load --save ck8
try mstrain --weight-decay --clip-grad 0.5
try mstrain --save --threads-per-rank 1
try mstrain --save --threads_per_rank=1
try mstrain --log-interval --bf16 2
try mstrain --data-path --bf16
try mstrain --bf16 --save $CKPT
try mstrain --save=$CKPT --bf16
try mstrain --save --print-config ck8
try mstrain --config --print-config
try mstrain --save --a-flag-of-another-release x
try mstrain --tokenizer-model --no-async-save
try msdata preprocess in.txt --output-prefix --append-eod
try msdata preprocess in.txt --json-keys --append-eod --output-prefix x
try msdata preprocess in.txt --output-prefix $CKPT
try msckpt convert --load-dir a --save-dir --drop-optimizer
try msckpt convert --load-dir a --save_dir --drop_optimizer
try msckpt convert --load-dir a --save-dir $CKPT
try msckpt reshard --load-dir --save-dir b
try msprof report trace.json -o --step 3
try msprof steps trace.json --csv --json
# Quoted, an empty variable is an empty path.
try msckpt verify "$CKPT"
try msckpt inspect "$CKPT" --json
try msprof analyze "$CKPT"
try msprof analyze trace.json --threads 0
# What is meant as a value is one.
mstrain --save=--bf16 --seed 3 --print-config | grep -e '"save":' -e '"bf16":'
mstrain --weight-decay -1e-5 --print-config | grep '"weight_decay":'
ls
