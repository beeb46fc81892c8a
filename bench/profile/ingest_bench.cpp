// Measures reading JSON text in memory to columns of the store, next to simdjson's on-demand pass that only counts
// events.
//
//   bench.profile.ingest FILE... [flags of Google Benchmark]     FILE: Chrome JSON, plain or compressed
//
// Cases: count/simdjson/FILE, columns/msprof/FILE, and columns/msprof/threads:2/FILE, whose CPU time is the sum of both
// threads. All must find the same number of events.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_support.h"
#include "profile/ingest/byte_stream.h"
#include "profile/ingest/chrome_json.h"
#if MS_HAVE_SIMDJSON
#include <simdjson.h>
#endif

namespace ms::profile {
namespace {

// Followed by ByteStream::kBehind readable bytes.
std::string text_of(const std::string& path) {
  ImportStats stats;
  const auto stream = open_bytes(path, stats, 1);
  std::string text;
  for (size_t have = 0, got = 1; got > 0; have += got) {
    text.resize(have + (size_t{16} << 20));
    got = stream->read(text.data() + have, text.size() - have);
    text.resize(have + got);
  }
  text.append(ByteStream::kBehind, '\0');
  return text;
}

// A text in memory, lent in one piece.
class MemoryStream final : public ByteStream {
 public:
  explicit MemoryStream(std::span<char> text) : text_(text) {}
  size_t read(char* out, size_t size) override {
    const size_t n = std::min(size, text_.size() - at_);
    std::copy_n(text_.begin() + static_cast<int64_t>(at_), n, out);
    at_ += n;
    return n;
  }
  bool lends() const override { return true; }
  std::span<char> lend() override { return text_.subspan(std::exchange(at_, text_.size())); }
  int64_t size() const override { return static_cast<int64_t>(text_.size()); }
  std::unique_ptr<ByteStream> from(int64_t offset) const override {
    auto out = std::make_unique<MemoryStream>(text_);
    out->at_ = static_cast<size_t>(offset);
    return out;
  }

 private:
  std::span<char> text_;
  size_t at_ = 0;
};

int64_t columns(std::span<char> text, int threads) {
  MemoryStream stream(text);
  RankTrace trace;
  FileInfo file;
  ImportStats stats;
  read_chrome_json(stream, "memory", trace, file, stats, {threads, 0});
  return file.events;
}

void report(benchmark::State& state, std::span<char> text) {
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

#if MS_HAVE_SIMDJSON
int64_t count(const simdjson::padded_string& text) {
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document = parser.iterate(text);
  simdjson::ondemand::array events;
  if (document.get_array().get(events) != simdjson::SUCCESS) events = document["traceEvents"].get_array();
  int64_t n = 0;
  for (auto event : events) {
    if (event.error() != simdjson::SUCCESS) break;
    ++n;
  }
  return n;
}
#endif

void register_file(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string name = (file.parent_path().filename() / file.filename()).string();
  const auto all = std::make_shared<std::string>(text_of(path));
  const std::span<char> text(all->data(), all->size() - ByteStream::kBehind);
#if MS_HAVE_SIMDJSON
  benchmark::RegisterBenchmark(("count/simdjson/" + name).c_str(), [all, text](benchmark::State& state) {
    const simdjson::padded_string padded(text.data(), text.size());
    if (count(padded) != columns(text, 1)) return state.SkipWithError("msprof and simdjson count different events");
    for (auto _ : state) benchmark::DoNotOptimize(count(padded));
    report(state, text);
  });
#endif
  const auto register_columns = [&](const std::string& of, int threads) {
    return benchmark::RegisterBenchmark((of + name).c_str(), [all, text, threads](benchmark::State& state) {
      if (columns(text, threads) != columns(text, 1)) return state.SkipWithError("threads read different events");
      for (auto _ : state) benchmark::DoNotOptimize(columns(text, threads));
      report(state, text);
    });
  };
  register_columns("columns/msprof/", 1);
  register_columns("columns/msprof/threads:2/", 2)->MeasureProcessCPUTime();
}

}  // namespace
}  // namespace ms::profile

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (int i = 1; i < argc; ++i) ms::profile::register_file(argv[i]);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
