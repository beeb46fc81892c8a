// What planning costs where there are many tensors: 229,000 of them, TP 8 PP 8 to TP 16 PP 32, 1.6 million source
// boxes. The manifest is read from disk (cold if root can drop the cache), no tensor data is.
//
//   bench.ckpt.plan FOLDER [LAYERS [SOURCE_DP [TARGET_DP]]]     prints JSON; what is made in FOLDER is removed
//
// With a data-parallel size above 1 the optimizer state is in ZeRO pieces.
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/ckpt/measure.h"
#include "bench/ckpt/sparse_checkpoint.h"
#include "bench/ckpt/trained_model.h"
#include "ckpt/plan.h"
#include "ckpt/reader.h"
#include "ckpt/reshard.h"
#include "ckpt/shard_list.h"
#include "core/layout/model_layout.h"

namespace {

using namespace ms;
namespace fs = std::filesystem;

core::TransformerConfig model(int64_t layers) {
  core::TransformerConfig config = bench::llama_config(256, 16, 31123);
  config.num_layers = layers;
  config.resolve(1024);
  return config;
}

double cpu_seconds() {  // of this process: what the wall clock would say on an idle machine
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

int run(const fs::path& folder, int64_t layers, int source_dp, int target_dp) {
  const auto config = model(layers);
  const std::vector<ckpt::RoleSpec> roles = bench::trained_roles();
  const pid_t maker = ::fork();  // so that its memory is not counted
  if (maker == 0) {
    const layout::ModelLayout from{8, 8, source_dp, source_dp > 1 ? 1 : 0};
    ckpt::CheckpointInfo info;
    info.model = config;
    info.layout = layout::layout_to_json(from);
    bench::make_sparse_checkpoint(folder, info, ckpt::shards_of_checkpoint(from, config, roles));
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(maker, &status, 0);
  if (status != 0) return 1;
  ::sync();
  std::ofstream("/proc/sys/vm/drop_caches") << "3";  // only as root; else the manifest is read hot
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);              // as msckpt
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  const auto seconds = [&] { return cpu_seconds() - cpu_start; };
  const auto source = ckpt::open_native(folder);
  const double opened = seconds();
  const auto plan = ckpt::plan_reshard(*source, {16, 32, target_dp, target_dp > 1 ? 1 : 0}, {});
  const double listed = seconds();
  int64_t copies = 0, elements = 0, target_elements = 0;
  ckpt::plan_copies(source->shards(), plan.targets.shards, [&](const ckpt::CopyRegion& copy) {
    ++copies;
    elements += core::num_elements(copy.extent);
  });
  const double planned = seconds();
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (size_t i = 0; i < plan.targets.shards.size(); ++i) target_elements += plan.targets.shards.elements(i);
  const nlohmann::json result = {{"tensors", source->shards().num_tensors()},
                                 {"source_boxes", source->shards().size()},
                                 {"target_boxes", plan.targets.shards.size()},
                                 {"copies", copies},
                                 {"read_manifest_cpu_s", opened},
                                 {"list_targets_cpu_s", listed - opened},
                                 {"plan_cpu_s", planned - listed},
                                 {"total_cpu_s", planned},
                                 {"total_wall_s", wall},
                                 {"peak_MiB", static_cast<double>(bench::peak_memory_kib()) / 1024}};
  std::printf("%s\n", result.dump(2).c_str());
  return elements == target_elements ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return ms::bench::in_folder(argc, argv, "bench.ckpt.plan FOLDER [LAYERS [SOURCE_DP [TARGET_DP]]]",
                              [&](const fs::path& folder) {
                                return run(folder, argc > 2 ? std::atoll(argv[2]) : 9536,
                                           argc > 3 ? std::atoi(argv[3]) : 1, argc > 4 ? std::atoi(argv[4]) : 1);
                              });
}
