# What is misspelt, a verb or a flag, is answered with the nearest known one and with the place to look it up.
try() { "$@"; echo "$?"; }
try msckpt inspct
try msckpt --convert
try msdata prepocess
try msprof crticial-path
try msckpt convert --save-dri x
try msckpt verify --agianst=x y
try msdata preprocess --tokenizer-typ x in.txt
try msprof steps --thraeds 3 x
try mstrain --wieght_decay 0.1
try mstrain --hepl
