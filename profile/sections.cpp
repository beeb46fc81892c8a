#include "profile/sections.h"

#include <algorithm>

#include "core/error.h"
#include "profile/analysis/comm_detail.h"
#include "profile/analysis/kernel_spread.h"
#include "profile/report/expert_tables.h"
#include "profile/report/job_tables.h"
#include "profile/report/json_job.h"
#include "profile/report/json_sections.h"
#include "profile/report/rank_tables.h"
#include "profile/report/section_files.h"

namespace ms::profile::sections {
namespace {

// Adapts an analysis of one rank that needs only the trace and its device events.
template <auto analysis>
void of_devices(const RankInput& in, RankResults& out) {
  out.set(analysis(in.trace, in.view));
}
// The same for an optional result; an empty one is not stored.
template <auto analysis>
void if_any(const RankInput& in, RankResults& out) {
  if (auto result = analysis(in.trace, in.view)) out.set(std::move(*result));
}

PerStep per_step(const RankTrace& trace, const DeviceView& view) {
  return {breakdown_per_step(trace, view), devices_outside_steps(view)};
}
MemoryUse memory_use(const RankTrace& trace, const DeviceView& view) {
  return {memory_operations(trace, view), memory_timelines(trace)};
}
RankSteps rank_steps(const RankTrace& trace, const DeviceView& view) {
  return {trace.rank, layout_index(trace), step_rows(trace, view)};
}
void steps_of_rank(const RankInput& in, RankResults& out) {
  out.set(rank_steps(in.trace, in.view));
  out.set(ascend_steps(in.trace, in.view));
}
void queues_of_rank(const RankInput& in, RankResults& out) {
  out.set(queue_lengths(in.trace, in.view, in.options.queue_limit));
}
void idle_of_rank(const RankInput& in, RankResults& out) {
  out.set(stream_idle(in.trace, in.view, in.options.consecutive_kernel_delay));
}

void steps_of_job(const JobInput&, Results& out) {
  std::vector<RankSteps> steps;
  for (const RankResults& rank : out.ranks) steps.push_back(rank.at<RankSteps>());
  out.set(cluster_steps(steps));
}
void kernel_spread_of_job(const JobInput&, Results& out) {
  std::vector<RankKernels> kernels;
  for (const RankResults& rank : out.ranks) kernels.push_back({rank.rank, &rank.at<std::vector<KernelRow>>()});
  out.set(kernel_spread(kernels));
}
void cross_rank_of_job(const JobInput& in, Results& out) {
  const MatchedComms& comms = out.set(match_comms(in.ranks));
  const CrossRank& cross = out.set(cross_rank(in.ranks, comms, in.options.align));
  const auto has_no_times = [](const RankDevices& rank) { return is_routing_record(*rank.trace); };
  if (in.ranks.size() > 1 && !cross.clocks.reliable) {
    if (std::ranges::all_of(in.ranks, has_no_times)) return;
    out.warnings.push_back(core::cat("no results across ranks: ", cross.clocks.why));
  } else if (cross.groups_incomplete) {
    out.warnings.push_back("members of some groups have no trace: blame is among the traced ranks only");
  }
}
void pipeline_of_job(const JobInput& in, Results& out) {
  const auto& comms = out.at<MatchedComms>();
  // Of all sections together, no user needs to be told this.
  if (out.sections == Sections{&kPipeline}) {
    if (std::string missing = missing_stages(comms); !missing.empty()) out.warnings.push_back(std::move(missing));
  }
  auto found = pipeline(in.ranks, comms, out.at<CrossRank>());
  if (!found) return;
  if (auto actions = pipeline_actions(in.ranks, comms, out.at<CrossRank>(), *found)) {
    use_actions(*actions, *found);
    out.set(std::move(*actions));
  }
  out.set(std::move(*found));
}
void experts_of_job(const JobInput& in, Results& out) {
  const auto& cross = out.at<CrossRank>();
  auto use = expert_use(in.ranks, cross, in.options.experts);
  if (use) {
    out.set(std::move(*use));
  } else if (out.sections == Sections{&kExperts}) {
    out.warnings.push_back(
        "no experts in the traces: mstrain records their load since 0.2, of models with --num-experts");
  }
}
void pop_of_job(const JobInput& in, Results& out) {
  if (auto pop = pop_efficiencies(in.ranks, out.at<MatchedComms>(), out.at<CrossRank>(), in.pool)) {
    out.set(std::move(*pop));
  }
}
void findings_of_job(const JobInput& in, Results& out) {
  const Imbalance& even = out.set(imbalance(in.ranks, in.pool));
  std::vector<const IdleReasons*> idle;
  for (const RankResults& rank : out.ranks) idle.push_back(&rank.at<IdleReasons>());
  Losses losses = find_losses(in.ranks, idle, even, in.pool);
  blame_waiting(in.ranks, out.at<MatchedComms>(), out.at<CrossRank>(), out.get<Pipeline>(), losses.findings);
  for (Finding& finding : losses.findings) {
    if (finding.kind != FindingKind::kExposedCommunication) continue;
    if (std::string detail = largest_communication(in.ranks, out.at<CrossRank>()); !detail.empty()) {
      finding.detail = std::move(detail);
    }
  }
  out.set(losses.time);
  out.set(std::move(losses.findings));
}

}  // namespace

const Section kFacts = {.name = "facts",
                        .needs = {},
                        .analyse_rank = of_devices<facts>,
                        .tables = {facts_table},
                        .write_rank = write_facts};
const Section kBreakdown = {.name = "breakdown",
                            .needs = {},
                            .analyse_rank = if_any<breakdown>,
                            .tables = {breakdown_table},
                            .write_rank = write_breakdown};
const Section kPerStep = {.name = "per_step",
                          .needs = {},
                          .analyse_rank = of_devices<per_step>,
                          .tables = {per_step_table},
                          .write_rank = write_per_step};
const Section kKernelTypes = {.name = "kernel_types",
                              .needs = {},
                              .analyse_rank = of_devices<kernel_types>,
                              .tables = {kernel_types_table},
                              .write_rank = write_kernel_types};
const Section kKernels = {.name = "kernels",
                          .needs = {},
                          .analyse_rank = of_devices<kernel_rows>,
                          .tables = {kernels_table},
                          .write_rank = write_kernels};
const Section kKernelSpread = {.name = "kernel_spread",
                               .needs = {&kKernels},
                               .analyse_job = kernel_spread_of_job,
                               .tables = {kernel_spread_table},
                               .write_job = write_kernel_spread};
const Section kOperators = {.name = "operators",
                            .needs = {},
                            .analyse_rank = of_devices<operator_rows>,
                            .tables = {operators_table},
                            .write_rank = write_operators};
const Section kLaunches = {.name = "launch_stats",
                           .needs = {},
                           .analyse_rank = if_any<launch_stats>,
                           .tables = {launch_table},
                           .write_rank = write_launch_stats};
const Section kQueues = {.name = "queue_length",
                         .needs = {},
                         .analyse_rank = queues_of_rank,
                         .tables = {queue_table},
                         .write_rank = write_queue_length};
const Section kIdle = {
    .name = "idle", .needs = {}, .analyse_rank = idle_of_rank, .tables = {idle_table}, .write_rank = write_idle};
const Section kIdleCauses = {.name = "idle_causes",
                             .needs = {},
                             .analyse_rank = of_devices<rank_idle_reasons>,
                             .tables = {idle_causes_table},
                             .write_rank = write_idle_causes};
const Section kMemory = {.name = "memory",
                         .needs = {},
                         .analyse_rank = of_devices<memory_use>,
                         .tables = {copies_table, allocator_table, live_table},
                         .write_rank = write_memory};
const Section kSteps = {.name = "steps",
                        .needs = {},
                        .analyse_rank = steps_of_rank,
                        .analyse_job = steps_of_job,
                        .tables = {ascend_table},
                        .write_rank = write_steps,
                        .write_job = write_cluster,
                        .csv_name = "cluster_step_trace_time.csv",
                        .csv = steps_csv};
const Section kTensorboardSteps = {.name = "tensorboard_steps",
                                   .needs = {},
                                   .analyse_rank = of_devices<tensorboard_steps>,
                                   .tables = {tensorboard_table},
                                   .write_rank = write_tensorboard_steps};
const Section kCrossRank = {
    .name = "cross_rank", .needs = {}, .analyse_job = cross_rank_of_job, .write_job = write_cross_rank};
const Section kRanks = {.name = "ranks", .needs = {&kCrossRank}, .tables = {ranks_table, slow_table, waits_table}};
const Section kLinks = {.name = "links", .needs = {&kCrossRank}, .tables = {links_table, rates_table}};
const Section kExperts = {
    .name = "experts",
    .needs = {&kCrossRank},
    .analyse_job = experts_of_job,
    .tables = {expert_layers_table, expert_ranks_table, expert_waits_table, expert_steps_table, hot_experts_table},
    .write_job = write_experts};
const Section kPipeline = {.name = "pipeline",
                           .needs = {&kCrossRank},
                           .analyse_job = pipeline_of_job,
                           .tables = {pipeline_table, stage_waits_table, stage_actions_table, action_times_table},
                           .write_job = write_pipeline};
const Section kPop = {.name = "pop",
                      .needs = {&kCrossRank},
                      .analyse_job = pop_of_job,
                      .tables = {pop_table, useful_table},
                      .write_job = write_pop};
const Section kFindings = {.name = "findings",
                           .needs = {&kCrossRank, &kPipeline, &kIdleCauses},
                           .analyse_job = findings_of_job,
                           .write_job = write_findings,
                           .csv_name = "findings.csv",
                           .csv = findings_csv};

const Sections& every() {
  static const Sections kEvery = {&kFacts,        &kBreakdown, &kPerStep,  &kKernelTypes, &kKernels,
                                  &kKernelSpread, &kOperators, &kLaunches, &kQueues,      &kIdle,
                                  &kIdleCauses,   &kMemory,    &kSteps,    &kCrossRank,   &kRanks,
                                  &kLinks,        &kExperts,   &kPipeline, &kPop,         &kFindings};
  return kEvery;
}

const Sections& for_check() {
  static const Sections kForCheck = {&kBreakdown, &kSteps, &kRanks, &kPop, &kPipeline};
  return kForCheck;
}

}  // namespace ms::profile::sections
