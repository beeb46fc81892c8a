// Converts a Hugging Face folder into a Megatron tree without writing files: plans, reads, cuts for every rank, and
// passes the data to a sink that discards it. All values must be zeros, as in the sparse files that deepseek_671b.py
// makes.
//
//   bench.convert.huge FOLDER TP PP EP LAYER_LIST [THREADS]     2 threads, 256 MiB of --mem; prints JSON
//
// Compared with a conversion only the archives are missing: a pickle per open file and a CRC-32 per tensor.
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/ckpt/measure.h"
#include "bench/ckpt/null_sink.h"
#include "ckpt/execute.h"
#include "convert/huggingface.h"
#include "convert/megatron_target.h"
#include "core/layout/model_layout.h"

namespace {

using namespace ms;

layout::ModelLayout layout_of(int tp, int pp, int ep, const std::string& layer_list) {
  layout::ModelLayout layout;
  layout.tensor_model_parallel_size = tp;
  layout.pipeline_model_parallel_size = pp;
  layout.expert_model_parallel_size = ep;
  layout.expert_tensor_parallel_size = tp;
  layout.data_parallel_size = ep;
  std::istringstream list(layer_list);
  for (std::string layers; std::getline(list, layers, ',');)
    layout.num_layer_list.push_back(std::atoll(layers.c_str()));
  return layout;
}

double peak_mib() { return static_cast<double>(bench::peak_memory_kib()) / 1024; }

int run(const std::string& folder, const layout::ModelLayout& layout, int threads) {
  const auto source = convert::open_huggingface(folder);
  const ckpt::ShardTable& shards = source->shards();
  const auto dtype = [&](const std::string& key) {
    const auto roles = shards.find_roles(key);
    return shards.dtype(std::max(roles[static_cast<size_t>(core::TensorRole::kParam)],
                                 roles[static_cast<size_t>(core::TensorRole::kBuffer)]));
  };
  convert::MegatronTarget target;
  std::vector<std::string> decisions;
  const double planned_s = bench::seconds([&] {
    convert::MegatronTargetOptions options;
    options.root = folder + "/never_made";
    options.layout = layout;
    target = convert::make_megatron_tree_target(*source, options, dtype, decisions);
  });
  const double planned_mib = peak_mib();
  bench::NullSink sink([&](int32_t index) { return target.sink->file_of(index); });
  ckpt::ExecuteOptions options;
  options.threads = threads;
  const auto report = ckpt::execute(*source, sink, source->info(), target.shards, options);
  int64_t elements = 0;
  for (size_t i = 0; i < target.shards.size(); ++i) elements += target.shards.elements(i);
  const nlohmann::json result = {
      {"bytes", report.bytes},         {"tensors", shards.num_tensors()},
      {"source_boxes", shards.size()}, {"target_boxes", target.shards.size()},
      {"copies", report.copies},       {"plan_s", planned_s},
      {"convert_s", report.seconds},   {"GB_per_s", static_cast<double>(report.bytes) / 1e9 / report.seconds},
      {"planned_MiB", planned_mib},    {"peak_MiB", peak_mib()}};
  std::printf("%s\n", result.dump().c_str());
  return sink.elements() == elements ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "bench.convert.huge FOLDER TP PP EP LAYER_LIST [THREADS]\n");
    return 2;
  }
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);  // as in msckpt
  try {
    return run(argv[1], layout_of(std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), argv[5]),
               argc > 6 ? std::atoi(argv[6]) : 2);
  } catch (const ms::core::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
