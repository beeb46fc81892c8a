# Every binary names itself and its version, on stdout alone.
for binary in mstrain msckpt msprof msdata; do
  $binary --version || exit
done
