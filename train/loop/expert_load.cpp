#include "train/loop/expert_load.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/layout/expert_packing.h"
#include "core/trace/recorder.h"
#include "train/model/traced_layer.h"

namespace ms::train {
namespace {

constexpr double kHotShare = 2;

// Besides the tokens of each expert: rows that were received, dropped choices, four losses, micro-batches.
constexpr size_t kOthers = 7;

double mean_tokens(const LayerLoad& load) {
  const auto sum = std::accumulate(load.tokens.begin(), load.tokens.end(), int64_t{0});
  return static_cast<double>(sum) / static_cast<double>(load.tokens.size());
}

std::string times(double share) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), " (%.1f x)", share);
  return text.data();
}

// "layer 0: 2 5, layer 1: 7" of the experts that `name` gives a text for, of a long list the beginning.
template <class Name>
std::string list_experts(const ExpertLoads& loads, const Name& name) {
  constexpr int kMaxNamed = 16;
  std::string all;
  int found = 0;
  for (const auto& [layer, load] : loads) {
    const double mean = mean_tokens(load);
    std::string own;
    for (size_t e = 0; e < load.tokens.size(); ++e) {
      const std::string text = name(e, mean > 0 ? static_cast<double>(load.tokens[e]) / mean : 1);
      if (!text.empty() && ++found <= kMaxNamed) own += text;
    }
    if (!own.empty()) all += core::cat(all.empty() ? "" : ", ", "layer ", layer, ":", own);
  }
  return found > kMaxNamed ? core::cat(all, ", and ", found - kMaxNamed, " more") : all;
}

}  // namespace

ExpertLoads sum_over_ranks(core::Communicator& world, const core::TransformerConfig& model,
                           const RoutingStatistics& own, int etp) {
  std::vector<bool> layers = model.layers_with_experts();
  layers.resize(static_cast<size_t>(model.num_layers_with_mtp()), layers.back());  // of the kind of the last
  const auto experts = static_cast<size_t>(model.num_experts);
  const size_t width = experts + kOthers;
  std::vector<double> sums(layers.size() * width);
  for (const auto& [layer, load] : own.layers()) {
    const auto at = std::span(sums).subspan(static_cast<size_t>(layer) * width, width);
    std::ranges::transform(load.tokens, at.begin(), [](int64_t tokens) { return static_cast<double>(tokens); });
    const std::array<double, kOthers> others = {static_cast<double>(load.received),
                                                static_cast<double>(load.dropped),
                                                load.losses.aux,
                                                load.losses.seq_aux,
                                                load.losses.global_aux,
                                                load.losses.z,
                                                static_cast<double>(load.microbatches)};
    std::ranges::copy(others, at.last<kOthers>().begin());
  }
  if (world.size() > 1) world.allreduce(sums);
  ExpertLoads loads;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    if (!layers[layer]) continue;
    const auto at = std::span<const double>(sums).subspan(layer * width, width);
    const auto others = at.last<kOthers>();
    LayerLoad& load = loads[static_cast<int64_t>(layer)];
    load.mtp = traced_layer(model, static_cast<int64_t>(layer)).mtp;
    for (const double tokens : at.first(experts)) load.tokens.push_back(static_cast<int64_t>(tokens));
    load.received = static_cast<int64_t>(others[0]);
    load.dropped = static_cast<int64_t>(others[1]);
    load.losses = {.aux = others[2], .seq_aux = others[3], .global_aux = others[4], .z = others[5]};
    load.microbatches = static_cast<int64_t>(others[6]);
    const int64_t sent = std::accumulate(load.tokens.begin(), load.tokens.end(), int64_t{0});
    MS_CHECK(load.received == etp * sent, "layer ", layer, ": ", sent, " rows were sent to experts of ", etp,
             " ranks each, but ", load.received, " received");
  }
  return loads;
}

void add_holders(const RankState& state, ExpertLoads& loads) {
  if (state.expert_slots == nullptr) return;
  const int64_t each = state.config.model.num_experts / state.groups.grid.ep;
  for (auto& [layer, load] : loads) {
    load.holders = state.expert_slots->at(layer);
    for (int32_t& place : load.holders) place = static_cast<int32_t>(place / each);
  }
}

void record_rows(const RankState& state, const RoutingStatistics& own) {
  using core::trace::ExpertCount;
  core::trace::Recorder* const recorder = state.ops.recorder;
  if (recorder == nullptr || !recorder->active()) return;
  const int64_t now = core::trace::now_ns(), ep = state.groups.at_experts.ep;
  const auto count = state.groups.at_experts.etp == 0 ? ExpertCount::kRows : ExpertCount::kPartRows;
  for (const auto& [layer, load] : own.layers()) {
    const auto experts = static_cast<int64_t>(load.rows.size());
    core::trace::ExpertCounter counter{traced_layer(state.config.model, layer), 0, count};
    std::vector<int32_t> moved;  // the expert of each slot; empty: none has
    if (state.expert_slots != nullptr) moved = layout::experts_of_slots(state.expert_slots->at(layer));
    int64_t slot = ep * experts;
    for (const int64_t rows : load.rows) {
      counter.expert = moved.empty() ? slot : moved[static_cast<size_t>(slot)];
      recorder->counter(expert_counter_name(counter), now, static_cast<double>(rows));
      ++slot;
    }
  }
}

void add_loads(ExpertLoads& sum, const ExpertLoads& more) {
  for (const auto& [layer, load] : more) {
    sum[layer] += load;
  }
}

ops::BalanceLosses mean_losses(const ExpertLoads& loads) {
  ops::BalanceLosses mean;
  for (const auto& [layer, load] : loads) {
    const double each =
        static_cast<double>(std::max<int64_t>(load.microbatches, 1) * static_cast<int64_t>(loads.size()));
    mean.aux += load.losses.aux / each;
    mean.seq_aux += load.losses.seq_aux / each;
    mean.global_aux += load.losses.global_aux / each;
    mean.z += load.losses.z / each;
  }
  return mean;
}

BusiestExpert busiest_expert(const ExpertLoads& loads) {
  BusiestExpert busiest;
  for (const auto& [layer, load] : loads) {
    const double mean = mean_tokens(load);
    const auto most = std::ranges::max_element(load.tokens);
    const double share = mean > 0 ? static_cast<double>(*most) / mean : 0;
    if (share > busiest.share) busiest = {layer, most - load.tokens.begin(), share};
  }
  return busiest;
}

double dropped_share(const ExpertLoads& loads) {
  int64_t dropped = 0, kept = 0;
  for (const auto& [layer, load] : loads) {
    dropped += load.dropped;
    for (const int64_t tokens : load.tokens) kept += tokens;
  }
  return dropped > 0 ? static_cast<double>(dropped) / static_cast<double>(dropped + kept) : 0;
}

std::string hot_and_dead_experts(const ExpertLoads& loads) {
  const std::string hot = list_experts(loads, [](size_t expert, double share) {
    return share > kHotShare ? core::cat(" ", expert, times(share)) : std::string();
  });
  const std::string dead = list_experts(
      loads, [](size_t expert, double share) { return share == 0 ? core::cat(" ", expert) : std::string(); });
  return core::cat(hot.empty() ? "" : "hot experts: ", hot, hot.empty() || dead.empty() ? "" : "; ",
                   dead.empty() ? "" : "dead experts: ", dead);
}

}  // namespace ms::train
