# JSON has a versioned schema; diff exits with 10 on differences; a pipe closed by its reader is not an error.
"$MS_BUILD/tests/make_checkpoint" a 2 1 1 0 100
"$MS_BUILD/tests/make_checkpoint" b 2 1 1 0 100 200
check() { python3 -c "import json, sys; d = json.load(sys.stdin); print(d['schema'], d['verb'], $1)"; }
msckpt inspect --json a | check "d['iteration'], d['layout']['tp'], d['totals']['tensors'], d['model']['padded_vocab_size']"
msckpt verify --json a | check "d['ok'], d['findings'], d['files']"
msckpt diff --json a b | check "d['equal'], len(d['differences'])"
msckpt diff a b > /dev/null; echo "diff $?"
msckpt reshard --json --load-dir a --save-dir c | check "d['path']"
set -o pipefail
msckpt inspect --tensors a | head -1
msckpt verify - < /dev/null; echo "empty list $?"
