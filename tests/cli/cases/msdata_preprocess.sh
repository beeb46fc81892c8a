# The prefix goes to stdout and on through a pipe; stdin, dry run, JSON and Megatron's spellings work.
set -euo pipefail
mkdir -p docs/sub
printf 'aabb' > docs/b.txt
printf 'ab' > docs/sub/a.txt
msdata preprocess docs --output-prefix all --workers 2 | tee prefix
msdata inspect - < prefix
msdata entropy "$(cat prefix)"
msdata preprocess docs --output-prefix dry --dry-run
test ! -e dry_text_document.bin
printf '{"body": "x"}\n{"body": "yz"}\n' | msdata preprocess - --output_prefix piped --json_keys body --append-eod --dataset-impl mmap
msdata inspect piped_body_document --json | grep -E '"(schema|documents|tokens|dtype)"'
printf 'plain' | msdata preprocess --input - --format text --output-prefix text --json | grep -E '"(schema|documents|tokens|unigram_entropy)"'
find docs -name '*.txt' | sort | msdata preprocess - --format paths --output-prefix listed
cmp listed_text_document.bin all_text_document.bin
