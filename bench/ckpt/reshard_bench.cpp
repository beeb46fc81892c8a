// Reshards against `cp` and `sync` of the same bytes, uncompressed: TP 2 PP 2 to TP 4 PP 1 with optimizer state, caches
// cold, in turn: plain to plain, plain to compressed, compressed to compressed. All values are normal weights.
//
//   bench.ckpt.reshard FOLDER [GIB [ROUNDS [THREADS [WRITE_PATH]]]]     8 GiB, 3 rounds; prints JSON
//
// Medians. FOLDER decides which disk is measured; it needs room for three copies, and what is made in it is removed.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/ckpt/measure.h"
#include "bench/ckpt/trained_model.h"
#include "bench/median.h"
#include "ckpt/execute.h"
#include "ckpt/native_sink.h"
#include "ckpt/reader.h"
#include "ckpt/reshard.h"
#include "ckpt/shard_list.h"
#include "core/layout/box.h"
#include "core/layout/model_layout.h"

namespace {

using namespace ms;
namespace fs = std::filesystem;

// Normal weights without holding them.
class WeightsSource final : public ckpt::Source {
 public:
  WeightsSource(const ckpt::ShardTable& shards, const ckpt::CheckpointInfo& info) : shards_(shards), info_(info) {}
  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return shards_; }
  std::string describe(int32_t) const override { return "weights"; }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    const auto s = static_cast<size_t>(shard);
    const int64_t item = core::size_of(shards_.dtype_of(s));
    const auto place = static_cast<uint64_t>(layout::flat_index(shards_.extents(s), offset));
    weights_.fill(out, core::num_elements(extent) * item, item, s * 0x9E3779B97F4A7C15u + place);
  }

 private:
  const ckpt::ShardTable& shards_;
  const ckpt::CheckpointInfo& info_;
  const bench::NormalWeights weights_;
};

core::TransformerConfig model(double gib) {
  core::TransformerConfig config = bench::llama_config(2048, 16, gib < 2 ? 1000 : 32000);
  config.ffn_hidden_size = 5632;
  // 14 bytes for each parameter: two embeddings, and layers of 4 h^2 + 3 h f.
  const double ends = 2 * 32000.0 * 2048, layer = 2048.0 * (4 * 2048 + 3 * 5632);
  config.num_layers = 2 * std::max<int64_t>(1, std::llround((gib * (1 << 30) / 14 - ends) / layer / 2));
  config.resolve(2048);
  return config;
}

fs::path write(ckpt::Source& source, const ckpt::CheckpointInfo& info, const ckpt::ShardList& list, int world,
               const fs::path& root, bool compress, int threads, const std::string& write_path) {
  ckpt::NativeSinkOptions sink;
  sink.root = root;
  sink.rank_of_target = list.ranks;
  sink.num_ranks = world;
  sink.compress = compress;
  sink.write_path = core::parse_write_path(write_path);
  ckpt::ExecuteOptions options;
  options.threads = threads;
  return ckpt::execute(source, *ckpt::make_native_sink(std::move(sink)), info, list.shards, options).path;
}

int64_t bytes_in(const fs::path& directory) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(directory)) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

int run(const fs::path& folder, double gib, int rounds, int threads, const std::string& write_path) {
  const auto config = model(gib);
  for (const bool compressed : {false, true}) {
    bench::in_child(folder, [&] {
      const layout::ModelLayout from{2, 2, 1, 0};
      ckpt::CheckpointInfo info;
      info.iteration = 100;
      info.model = config;
      info.layout = layout::layout_to_json(from);
      const std::vector<ckpt::RoleSpec> roles = bench::trained_roles();
      const auto list = ckpt::shards_of_checkpoint(from, config, roles);
      WeightsSource weights(list.shards, info);
      write(weights, info, list, 4, folder / (compressed ? "compressed" : "plain"), compressed, threads, write_path);
    });
  }
  const fs::path plain = folder / "plain/iter_0000100", small = folder / "compressed/iter_0000100";
  struct Case {
    const char* name;
    fs::path source;
    bool compress;
    std::vector<double> seconds = {};
    int64_t peak_kib = 0;
  };
  std::vector<Case> cases = {{"plain", plain, false}, {"to_compressed", plain, true}, {"compressed", small, true}};
  std::vector<double> cp_s;
  for (int round = 0; round < rounds; ++round) {
    bench::drop_page_cache(plain);
    cp_s.push_back(bench::seconds([&] { bench::copy_and_sync(plain, folder / "copy"); }));
    fs::remove_all(folder / "copy");
    for (Case& run : cases) {
      bench::drop_page_cache(run.source);
      run.seconds.push_back(bench::seconds([&] {
        const int64_t peak = bench::in_child(folder, [&] {
          const auto reader = ckpt::open_native(run.source);
          const auto plan = ckpt::plan_reshard(*reader, {4, 1, 1, 0}, {});
          write(*reader, plan.info, plan.targets, 4, folder / "b", run.compress, threads, write_path);
        });
        run.peak_kib = std::max(run.peak_kib, peak);
      }));
      fs::remove_all(folder / "b");
    }
  }
  const int64_t bytes = bytes_in(plain);
  nlohmann::json result = {{"bytes", bytes},
                           {"compression_ratio", static_cast<double>(bytes) / static_cast<double>(bytes_in(small))},
                           {"cp_sync_s", bench::median(cp_s)},
                           {"load", bench::load()}};
  for (const Case& run : cases) {
    const double s = bench::median(run.seconds);
    result[run.name] = {{"reshard_s", s},
                        {"speed_over_cp", bench::median(cp_s) / s},
                        {"GB_per_s", static_cast<double>(bytes) / 1e9 / s},
                        {"peak_MiB", static_cast<double>(run.peak_kib) / 1024}};
  }
  std::printf("%s\n", result.dump(2).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return ms::bench::in_folder(argc, argv, "bench.ckpt.reshard FOLDER [GIB [ROUNDS [THREADS [WRITE_PATH]]]]",
                              [&](const fs::path& folder) {
                                return run(folder, argc > 2 ? std::atof(argv[2]) : 8, argc > 3 ? std::atoi(argv[3]) : 3,
                                           argc > 4 ? std::atoi(argv[4]) : 2, argc > 5 ? argv[5] : "auto");
                              });
}
