# What a binary does not know ends it with exit code 2, one line on stderr that says what was seen, and no result.
for binary in mstrain msckpt msprof msdata; do
  $binary frobnicate; echo "$binary verb $?"
  $binary --frobnicate; echo "$binary flag $?"
done
for binary in msckpt msprof msdata; do
  $binary; echo "$binary nothing $?"
done
msckpt inspect somewhere --frobnicate; echo "flag of a verb $?"
msprof steps somewhere --frobnicate; echo "flag of a verb $?"
msdata inspect somewhere --frobnicate; echo "flag of a verb $?"
