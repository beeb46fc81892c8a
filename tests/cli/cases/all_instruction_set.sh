# An instruction set that there is not, or that the CPU lacks, is the user's to correct: exit 2, and no result.
export MS_FORCE_ISA=bogus
mstrain --print-config; echo "$?"
msckpt families; echo "$?"
msprof info x.json; echo "$?"
msdata entropy x; echo "$?"
# What needs none answers.
mstrain --version
msckpt --version
