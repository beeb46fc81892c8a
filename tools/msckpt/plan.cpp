#include "tools/msckpt/plan.h"

#include <memory>
#include <string>

#include "ckpt/plan.h"
#include "ckpt/reshard.h"
#include "convert/detect.h"
#include "core/error.h"
#include "tools/guard.h"
#include "tools/msckpt/common.h"
#include "tools/msckpt/reshard_flags.h"

namespace ms::tools::msckpt {
namespace {

using core::cat;

struct PlanFlags {
  std::string load_dir;
  bool json = false;
  ReshardFlags reshard;
};

int run_plan(const PlanFlags& flags, const Process& process) {
  const std::string load_dir = single_path(process, flags.load_dir, "--load-dir");
  if (load_dir.empty()) return 0;
  const auto source = convert::open_source(load_dir);
  const ckpt::ReshardPlan plan =
      ckpt::plan_reshard(*source, target_layout(flags.reshard.layout, *source), reshard_options(flags.reshard));
  const auto& targets = plan.targets;
  ckpt::plan_copies(source->shards(), targets.shards, [&](const ckpt::CopyRegion& copy) {
    const core::ShardedTensor target = targets.shards[static_cast<size_t>(copy.target_shard)];
    const int rank = targets.ranks[static_cast<size_t>(copy.target_shard)];
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
  CLI::App* verb = add_command(app, "plan", "print the copies that a reshard would make, one a line", flags->json);
  add_load_dir(*verb, flags->load_dir);
  add_reshard_flags(*verb, flags->reshard);
  add_drop_optimizer(*verb, flags->reshard.drop_optimizer);
  return {verb, [flags](const Process& process) { return run_plan(*flags, process); }};
}

}  // namespace ms::tools::msckpt
