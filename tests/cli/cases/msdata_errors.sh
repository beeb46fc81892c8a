# One clear line on stderr, the exit code of README.md, and nothing left behind.
run() { msdata "$@"; echo "exit $?"; }
printf '{"text": "a"}\n{"text": \n' > bad.jsonl
printf 'hello' > good.txt
run
run preprocess good.txt
run preprocess good.txt --output-prefix out --no-such-flag
run preprocess absent.txt --output-prefix out
run preprocess good.txt --output-prefix good.txt/out
run preprocess bad.jsonl --output-prefix out
run preprocess bad.jsonl --output-prefix kept --skip-bad-lines
run preprocess good.txt --output-prefix out --tokenizer-type HuggingFaceTokenizer
run preprocess good.txt --output-prefix out --dataset-impl lazy
run preprocess . --glob '*.md' --output-prefix out
run inspect absent
msdata preprocess good.txt --output-prefix data > /dev/null 2>&1
truncate -s 5 data_text_document.bin
run inspect data_text_document
# A failing link ends the chain with its own exit code.
set -o pipefail
msdata preprocess bad.jsonl --output-prefix out | msdata inspect -
echo "chain $?"
# A reader that goes early is no error to shout about: more lines than a pipe holds, nobody who reads them.
set +o pipefail
msdata preprocess good.txt --output-prefix data > /dev/null 2>&1
yes data_text_document | head -n 10000 > list
msdata entropy - < list | true
echo "reader gone ${PIPESTATUS[0]}"
ls
