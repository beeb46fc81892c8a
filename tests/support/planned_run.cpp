#include "tests/support/planned_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/layout/formulas/communication.h"
#include "core/layout/formulas/flops.h"
#include "core/layout/process_group_table.h"
#include "train/plan.h"

namespace ms::test {
namespace {

std::vector<layout::Traffic> counted(const train::GroupCounters& counters) {
  std::vector<layout::Traffic> traffic;
  for (size_t group = 0; group < counters.size(); ++group) {
    for (size_t op = 0; op < counters[group].size(); ++op) {
      const core::CommCounter& counter = counters[group][op];
      if (counter.calls == 0) continue;
      traffic.push_back({static_cast<layout::Group>(group), static_cast<core::CommOp>(op), counter.calls,
                         counter.payload_bytes, counter.ring_bytes});
    }
  }
  return traffic;
}

std::string listed(const std::vector<layout::Traffic>& traffic) {
  std::string text;
  for (const layout::Traffic& t : traffic) {
    text += core::cat(layout::group_name(t.group), ' ', core::comm_op_name(t.op), ": ", t.calls, " calls, ",
                      t.payload_bytes, " bytes, ", t.ring_bytes, " sent; ");
  }
  return text;
}

void expect_within_a_tenth(int64_t planned, int64_t seen, const char* what) {
  EXPECT_NEAR(static_cast<double>(planned), static_cast<double>(seen), 0.1 * static_cast<double>(seen)) << what;
}

}  // namespace

void expect_plan_equals_run(train::TrainerConfig config, int ranks, bool exact) {
  config.training.train_iters = 2;
  config.parallel.shared_memory = false;  // the plan has the buffers of messages
  const std::vector<train::RunSummary> summaries = run_all_on_threads(config, ranks);
  config.model.vocab_size = 257;
  config.resolve_and_validate(ranks);
  const train::RunPlan plan(config.training_step(ranks), {}, {});
  for (int rank = 0; rank < ranks; ++rank) {
    SCOPED_TRACE(core::cat("rank ", rank));
    const train::RunSummary& summary = summaries[static_cast<size_t>(rank)];
    const train::StepMetrics& step = summary.steps.back();
    const train::StagePlan& planned = plan.stages()[static_cast<size_t>(config.grid(ranks).coordinates(rank).pp)];
    const std::string counts = listed(counted(summary.communication));
    EXPECT_EQ(listed(layout::step_traffic(config.training_step(ranks), rank)), counts);
    EXPECT_EQ(layout::executed_flops(config.training_step(ranks), rank), step.executed_flops);
    // Ranks that share a sequence may see others, and send others by an adaptive plan: the plan has the first one.
    if (config.grid(ranks).coordinates(rank).cp == 0) {
      EXPECT_EQ(listed(planned.traffic), counts);
      EXPECT_EQ(planned.executed_flops, step.executed_flops);
    }
    const auto peak = [&](core::MemoryTag tag) { return step.peak_bytes[static_cast<size_t>(tag)]; };
    EXPECT_EQ(planned.memory.param, peak(core::MemoryTag::kParam));
    EXPECT_EQ(planned.memory.grad, peak(core::MemoryTag::kGrad));
    EXPECT_EQ(planned.memory.master, peak(core::MemoryTag::kMaster));
    EXPECT_EQ(planned.memory.optim, peak(core::MemoryTag::kOptim));
    if (exact) {
      EXPECT_EQ(planned.memory.act, peak(core::MemoryTag::kAct)) << "activations";
    } else if (config.optimizer.freeze_parameters.empty()) {
      expect_within_a_tenth(planned.memory.act, peak(core::MemoryTag::kAct), "activations");
    } else {
      EXPECT_LE(static_cast<double>(peak(core::MemoryTag::kAct)), 1.1 * static_cast<double>(planned.memory.act))
          << "operands of what does not train are not kept";
    }
    const bool attends = std::ranges::any_of(planned.layers, [](const layout::LayerRange& of) { return of.count > 0; });
    if (attends) expect_within_a_tenth(planned.memory.tmp, peak(core::MemoryTag::kTmp), "tables and workspaces");
    EXPECT_EQ(planned.memory.tier, step.tier ? step.tier->peak_bytes : 0);
    EXPECT_EQ(planned.memory.swapped, step.tier ? step.tier->written_bytes : 0);
    // How many buckets, or parts of a product, are under way at once is a matter of time.
    if (config.parallel.overlap_grad_reduce || config.training_step(ranks).product_parts() > 1) {
      EXPECT_LE(peak(core::MemoryTag::kComm), planned.memory.comm);
    } else {
      expect_within_a_tenth(planned.memory.comm, peak(core::MemoryTag::kComm), "communication buffers");
    }
  }
}

void expect_plans_equal_runs(std::span<const TinyLayout> layouts, std::span<const PlanMode> changes, PlanTable table,
                             void (*model)(train::TrainerConfig&), bool exact) {
  for (const TinyLayout& layout : layouts) {
    for (const PlanMode& change : changes) {
      if (table == PlanTable::kDiagonals && !plan_is_due((&layout - layouts.data()) + (&change - changes.data())))
        continue;
      SCOPED_TRACE(core::cat(layout.name(), ", ", change.name));
      const TemporaryFolder folder;
      train::TrainerConfig config = tiny_config(folder.path(), layout);
      config.training.global_batch_size = 16;
      model(config);
      change.set(config);
      const bool is_exact = exact && config.optimizer.freeze_parameters.empty();
      expect_plan_equals_run(config, layout.ranks(), is_exact);
    }
  }
}

bool plan_is_due(std::ptrdiff_t diagonal) { return diagonal % 3 == 0 || std::getenv("MS_NIGHTLY") != nullptr; }

void swap_all(train::TrainerConfig& config) {
  config.training.swap_attention = true;
  config.training.swap_modules = "input_norm,self_attention,post_attention_norm";
  config.training.swap_min_tensor_kib = 0;
}

const PlanMode kPlanModes[kNumPlanModes] = {
    {"plain", [](train::TrainerConfig&) {}},
    {"block",
     [](train::TrainerConfig& config) {
       config.training.recompute_granularity = "full";
       config.training.recompute_method = "block";
       config.training.recompute_num_layers = 1;
     }},
    {"uniform_3",
     [](train::TrainerConfig& config) {
       config.training.recompute_granularity = "full";
       config.training.recompute_method = "uniform";
       config.training.recompute_num_layers = 3;
     }},
    {"mlp",
     [](train::TrainerConfig& config) {
       config.training.recompute_granularity = "selective";
       config.training.recompute_modules = {"mlp"};
     }},
    {"norm_and_activation",
     [](train::TrainerConfig& config) {
       config.training.recompute_norm = config.training.recompute_activation_function = true;
     }},
    {"swap_all_mlp_of_one_layer",
     [](train::TrainerConfig& config) {
       swap_all(config);
       config.training.recompute_num_layers = 1;
     }},
};

}  // namespace ms::test
