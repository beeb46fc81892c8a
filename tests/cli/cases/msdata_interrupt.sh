# SIGINT while stdin is silent: soon over, exit 128 + 2, no temporary file left.
mkfifo pipe
sleep 60 > pipe & writer=$!
msdata preprocess - --output-prefix out < pipe & tool=$!
for _ in $(seq 200); do ls | grep -q tmp && break; sleep 0.05; done
ls | grep -c tmp
# A script's background jobs ignore SIGINT until they handle it themselves, as msdata does.
kill -INT $tool
wait $tool
echo "exit $?"
kill $writer
ls
