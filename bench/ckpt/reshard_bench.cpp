// A reshard against `cp` and `sync` of the same bytes: TP 2 PP 2 to TP 4 PP 1 with optimizer state, caches cold, in
// turn.
//
//   bench.ckpt.reshard FOLDER [GIB [ROUNDS [THREADS [WRITE_PATH]]]]     8 GiB, 3 rounds; prints JSON
//
// Medians. FOLDER decides which disk is measured; it needs room for three copies, and what is made in it is removed.
// The page cache is dropped by the kernel where root may, else for each file before each run.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "bench/ckpt/sparse_checkpoint.h"
#include "ckpt/execute.h"
#include "ckpt/native_sink.h"
#include "ckpt/reader.h"
#include "ckpt/reshard.h"

namespace {

using namespace ms;
namespace fs = std::filesystem;

// Values that no disk compresses, without holding them.
class RandomSource final : public ckpt::Source {
 public:
  RandomSource(const ckpt::ShardTable& shards, const ckpt::CheckpointInfo& info) : shards_(shards), info_(info) {}
  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return shards_; }
  std::string describe(int32_t) const override { return "random"; }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    const auto s = static_cast<size_t>(shard);
    uint64_t state = s * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(ckpt::flat_index(shards_.extents(s), offset));
    const int64_t size = core::num_elements(extent) * core::size_of(shards_.dtype_of(s));
    for (int64_t i = 0; i < size; i += 8) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::memcpy(out + i, &state, static_cast<size_t>(std::min<int64_t>(8, size - i)));
    }
  }

 private:
  const ckpt::ShardTable& shards_;
  const ckpt::CheckpointInfo& info_;
};

core::TransformerConfig model(double gib) {
  core::TransformerConfig config;
  config.hidden_size = 2048;
  config.ffn_hidden_size = 5632;
  config.num_attention_heads = 16;
  config.vocab_size = 32000;
  config.normalization = "RMSNorm";
  config.position_embedding_type = "rope";
  config.swiglu = true;
  config.add_bias_linear = false;
  // 14 bytes for each parameter: two embeddings, and layers of 4 h^2 + 3 h f.
  const double ends = 2 * 32000.0 * 2048, layer = 2048.0 * (4 * 2048 + 3 * 5632);
  config.num_layers = 2 * std::max<int64_t>(1, std::llround((gib * (1 << 30) / 14 - ends) / layer / 2));
  if (gib < 2) config.vocab_size = 1000;
  config.untie_embeddings_and_output_weights = true;
  config.resolve(2048);
  return config;
}

fs::path write(ckpt::Source& source, const ckpt::CheckpointInfo& info, const ckpt::ShardList& list, int world,
               const fs::path& root, int threads, const std::string& write_path) {
  ckpt::NativeSinkOptions sink;
  sink.root = root;
  sink.rank_of_target = list.ranks;
  sink.num_ranks = world;
  sink.write_path = core::parse_write_path(write_path);
  ckpt::ExecuteOptions options;
  options.threads = threads;
  return ckpt::execute(source, *ckpt::make_native_sink(std::move(sink)), info, list.shards, options).path;
}

void drop_page_cache(const fs::path& directory) {
  ::sync();
  std::ofstream("/proc/sys/vm/drop_caches") << "3";
  for (const auto& entry : fs::directory_iterator(directory)) {
    const core::File file = core::File::open_read(entry.path().string());
    ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

// In a process of its own, as msckpt is; returns its peak memory in KiB.
int64_t in_child(const fs::path& folder, const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
      std::ofstream(folder / "peak") << bench::peak_memory_kib();
    } catch (const core::Error& e) {
      std::fprintf(stderr, "%s\n", e.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) std::exit(1);
  int64_t peak = 0;
  std::ifstream(folder / "peak") >> peak;
  return peak;
}

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(const fs::path& folder, double gib, int rounds, int threads, const std::string& write_path) {
  const auto config = model(gib);
  int64_t bytes = 0;
  fs::path source;
  in_child(folder, [&] {
    const ckpt::ModelLayout from{2, 2, 1, 0};
    ckpt::CheckpointInfo info;
    info.iteration = 100;
    info.model = config;
    info.layout = ckpt::layout_to_json(from);
    const std::vector<ckpt::RoleSpec> roles = {{core::TensorRole::kParam, core::DType::kBf16},
                                               {core::TensorRole::kMaster, core::DType::kFp32},
                                               {core::TensorRole::kExpAvg, core::DType::kFp32},
                                               {core::TensorRole::kExpAvgSq, core::DType::kFp32}};
    const auto list = ckpt::shards_of_checkpoint(from, config, roles);
    RandomSource random(list.shards, info);
    write(random, info, list, 4, folder / "a", threads, write_path);
  });
  source = folder / "a" / "iter_0000100";
  for (const auto& entry : fs::directory_iterator(source)) bytes += static_cast<int64_t>(entry.file_size());
  std::vector<double> cp_s, reshard_s;
  int64_t peak = 0;
  for (int round = 0; round < rounds; ++round) {
    drop_page_cache(source);
    cp_s.push_back(seconds([&] {
      const std::string command =
          "cp -r '" + source.string() + "' '" + (folder / "copy").string() + "' && sync -f '" + folder.string() + "'";
      if (std::system(command.c_str()) != 0) std::exit(1);
    }));
    fs::remove_all(folder / "copy");
    drop_page_cache(source);
    reshard_s.push_back(seconds([&] {
      peak = std::max(peak, in_child(folder, [&] {
                        const auto reader = ckpt::open_native(source);
                        const auto plan = ckpt::plan_reshard(*reader, {4, 1, 1, 0}, {});
                        write(*reader, plan.info, plan.targets, 4, folder / "b", threads, write_path);
                      }));
    }));
    fs::remove_all(folder / "b");
  }
  std::ifstream load("/proc/loadavg");
  double load_1 = 0;
  load >> load_1;
  const nlohmann::json result = {{"bytes", bytes},
                                 {"cp_sync_s", median(cp_s)},
                                 {"reshard_s", median(reshard_s)},
                                 {"reshard_speed_over_cp", median(cp_s) / median(reshard_s)},
                                 {"reshard_GB_per_s", static_cast<double>(bytes) / 1e9 / median(reshard_s)},
                                 {"peak_MiB", static_cast<double>(peak) / 1024},
                                 {"load", load_1}};
  std::printf("%s\n", result.dump(2).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "bench.ckpt.reshard FOLDER [GIB [ROUNDS [THREADS [WRITE_PATH]]]]\n");
    return 2;
  }
  const fs::path folder = fs::path(argv[1]) / ("reshard_bench_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  int code = 1;
  try {
    code = run(folder, argc > 2 ? std::atof(argv[2]) : 8, argc > 3 ? std::atoi(argv[3]) : 3,
               argc > 4 ? std::atoi(argv[4]) : 2, argc > 5 ? argv[5] : "auto");
  } catch (const core::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  fs::remove_all(folder);
  return code;
}
