# A flipped byte, a truncated file and a missing pointer: named, exit 3, and nothing is written from damaged data.
"$MS_BUILD/tests/make_checkpoint" a 1 1 1 0 100 200
file=a/iter_0000100/rank_00000.h5
size=$(stat -c %s "$file")
cp "$file" good
printf '\377' | dd of="$file" bs=1 seek=$((size / 2)) conv=notrunc status=none
msckpt verify a; echo "verify $?"
msckpt verify --fast a; echo "fast $?"
msckpt reshard --load-dir a --save-dir b --target-tensor-parallel-size 2; echo "reshard $?"
ls b
head -c $((size - 1)) good > "$file"
msckpt verify --fast a; echo "cut $?"
msckpt inspect a; echo "inspect $?"
cp good "$file"
rm a/latest_checkpointed_iteration.txt
msckpt verify a; echo "mended $?"
set -o pipefail
msckpt verify nowhere | msckpt reshard --load-dir - --save-dir c; echo "chain $?"
