# Command lines that cannot be meant: one line, exit 2, nothing written.
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
msckpt inspect nowhere; echo "$?"
ls
