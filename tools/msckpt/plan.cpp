#include "tools/msckpt/plan.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/plan.h"
#include "ckpt/reshard.h"
#include "convert/detect.h"
#include "convert/named_target.h"
#include "core/error.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"
#include "tools/msckpt/named_result.h"
#include "tools/msckpt/reshard_flags.h"
#include "tools/msckpt/source_flags.h"

namespace ms::tools::msckpt {
namespace {

using core::cat;

struct PlanFlags {
  std::string load_dir;
  bool json = false;
  ReshardFlags reshard;
  convert::OpenOptions source;
};

struct Targets {
  ckpt::ShardTable shards;
  std::function<int(size_t shard)> rank_of;
};

// The targets of a reshard: for a known model by its layout, for named tensors by rows, as FSDP shards them.
Targets targets_of(const PlanFlags& flags, const ckpt::Source& source) {
  if (source.info().has_model) {
    ckpt::ReshardPlan plan =
        ckpt::plan_reshard(source, target_layout(flags.reshard.layout, source), reshard_options(flags.reshard));
    auto ranks = std::make_shared<ckpt::RankRuns>(std::move(plan.targets.ranks));
    return {std::move(plan.targets.shards), [ranks](size_t shard) { return static_cast<int>((*ranks)[shard]); }};
  }
  require_plain_layout(flags.reshard.layout, source);
  convert::NamedTargetOptions options;
  options.form = convert::NamedForm::kDcp;
  options.data_parallel_size = flags.reshard.layout.target.data_parallel_size;
  options.with_optimizer = !flags.reshard.drop_optimizer;
  options.dtype = reshard_options(flags.reshard).params_dtype;
  std::vector<std::string> decisions;
  auto shards = std::make_shared<ckpt::ShardTable>(convert::make_named_target(source, options, decisions).shards);
  return {*shards, [shards, dp = options.data_parallel_size](size_t shard) {
            const core::ShardedTensor target = (*shards)[shard];
            if (target.global_shape.empty()) return 0;
            return static_cast<int>(target.global_offset[0] / ((target.global_shape[0] + dp - 1) / dp));
          }};
}

int run_plan(const PlanFlags& flags, const Process& process) {
  const std::string load_dir = single_path(process, flags.load_dir, "--load-dir");
  if (load_dir.empty()) return 0;
  const auto source = convert::open_source(load_dir, flags.source);
  const Targets targets = targets_of(flags, *source);
  ckpt::plan_copies(source->shards(), targets.shards, [&](const ckpt::CopyRegion& copy) {
    const core::ShardedTensor target = targets.shards[static_cast<size_t>(copy.target_shard)];
    const int rank = targets.rank_of(static_cast<size_t>(copy.target_shard));
    if (flags.json) {
      print_json({{"source", source->describe(copy.source_shard)},
                  {"source_offset", copy.source_offset},
                  {"rank", rank},
                  {"tensor", target.key},
                  {"role", core::role_name(target.role)},
                  {"target_offset", copy.target_offset},
                  {"extent", copy.extent}});
    } else {
      print(cat(source->describe(copy.source_shard), " ", copy.source_offset, " + ", copy.extent, " -> rank ", rank,
                " ", target.key, " (", core::role_name(target.role), ") ", copy.target_offset, "\n"));
    }
  });
  return 0;
}

}  // namespace

Verb add_plan(CLI::App& app) {
  const auto flags = std::make_shared<PlanFlags>();
  CLI::App* verb = add_command(app, "plan", "print the copies that a reshard would make, one per line", flags->json);
  add_load_dir(*verb, flags->load_dir);
  add_reshard_flags(*verb, flags->reshard);
  add_drop_optimizer(*verb, flags->reshard.drop_optimizer);
  add_source_flags(*verb, flags->source);
  return {verb, [flags](const Process& process) { return run_plan(*flags, process); }};
}

}  // namespace ms::tools::msckpt
