# The prefix goes to stdout and on through a pipe; stdin, dry run, JSON and Megatron's spellings work.
set -euo pipefail
mkdir -p docs/sub
printf 'aabb' > docs/b.txt
printf 'ab' > docs/sub/a.txt
msdata preprocess docs --output-prefix all --workers 2 | tee prefix
msdata inspect - < prefix
msdata inspect "$(cat prefix)" --tokenizer-type ByteLevelTokenizer --show 5 | tail -n 5
msdata entropy "$(cat prefix)"
msdata preprocess docs --output-prefix dry --dry-run
test ! -e dry_text_document.bin
printf '{"body": "x"}\n{"body": "yz"}\n' | msdata preprocess - --output_prefix piped --json_keys body --append-eod --dataset-impl mmap
msdata inspect piped_body_document --json | grep -E '"(schema|documents|tokens|dtype)"'
printf 'plain' | msdata preprocess --input - --format text --output-prefix text --json | grep -E '"(schema|documents|tokens|unigram_entropy)"'
find docs -name '*.txt' | sort | msdata preprocess - --format paths --output-prefix listed
cmp listed_text_document.bin all_text_document.bin
# Texts that are ids already, into a folder that is made; a tokenizer that does not fit a data set is an error.
printf '7 7 3\n' | msdata preprocess - --format text --output-prefix new/folder/null --tokenizer-type NullTokenizer --vocab-size 300 --append-eod
msdata inspect new/folder/null_text_document --tokenizer-type NullTokenizer --vocab-size 300 --json | grep -A3 -E '"(eod|text|p50)"'
! msdata inspect new/folder/null_text_document --tokenizer-type ByteLevelTokenizer
