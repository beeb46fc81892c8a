# --help is a result: on stdout, exit code 0, with every verb; each verb answers for itself. A reader that leaves is fine.
mstrain --help | grep -c -e '^  --tensor-model-parallel-size' -e '^  --profile-level' -e '^  --data-path -'
for binary in msckpt msprof msdata; do
  verbs=$($binary --help | sed -n '/^Subcommands:/,$s/^  \([a-z-]*\) .*/\1/p')
  echo "$binary:" $verbs
  for verb in $verbs; do
    $binary "$verb" --help | grep -q "^Usage: $binary $verb" || echo "$binary $verb does not answer"
  done
done
set -o pipefail
for binary in mstrain msckpt msprof msdata; do
  for _ in 1 2 3 4 5; do
    $binary --help | true || [ $? -eq 141 ] || echo "$binary makes noise of a reader that left: $?"
  done
done
