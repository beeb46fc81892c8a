#include "train/loop/weight_hash.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/comm/agree.h"
#include "core/comm/flight_recorder.h"
#include "core/error.h"
#include "core/log.h"
#include "kernels/checksum.h"

namespace ms::train {
namespace {

using core::cat;
using Ranks = std::vector<int>;

// hashes: of each replica. Empty if all are equal.
std::string difference(const std::vector<int64_t>& hashes, const Ranks& world_ranks) {
  std::map<int64_t, Ranks> classes;
  for (size_t i = 0; i < hashes.size(); ++i) classes[hashes[i]].push_back(world_ranks[i]);
  if (classes.size() == 1) return "";
  const auto largest = std::ranges::max_element(classes, {}, [](const auto& c) { return c.second.size(); });
  Ranks others;
  for (const auto& [hash, ranks] : classes) {
    if (hash != largest->first) others.insert(others.end(), ranks.begin(), ranks.end());
  }
  std::ranges::sort(others);
  const auto named = [](const Ranks& ranks) { return cat(ranks.size() == 1 ? "rank " : "ranks ", ranks); };
  return cat(named(others), others.size() == 1 ? " differs" : " differ", " from ", named(largest->second));
}

// Of parameters whose replicas this group is.
void check_replicas(const ParameterStore& parameters, layout::Group group, ProcessGroups& groups) {
  core::Communicator& replicas = *groups.of_training(group);
  std::vector<const Parameter*> all;
  for (const Parameter& parameter : parameters.all()) {
    if (parameters.unit_of(parameter).replicas == group) all.push_back(&parameter);
  }
  std::vector<int64_t> own, gathered;
  if (replicas.size() > 1 && !all.empty()) {
    for (const Parameter* parameter : all) {
      const core::TensorView& weight = parameter->weight;
      own.push_back(static_cast<int64_t>(kernels::xxh3(weight.bytes(), static_cast<size_t>(weight.size_bytes()))));
    }
    gathered.resize(own.size() * static_cast<size_t>(replicas.size()));
    replicas.allgather(core::TensorView(own.data(), core::DType::kInt64, {static_cast<int64_t>(own.size())}),
                       core::TensorView(gathered.data(), core::DType::kInt64, {static_cast<int64_t>(gathered.size())}));
  }
  core::collectively(groups.world, "weights of data-parallel replicas", [&] {
    for (size_t i = 0; i < own.size(); ++i) {
      std::vector<int64_t> hashes;
      for (size_t replica = i; replica < gathered.size(); replica += own.size()) hashes.push_back(gathered[replica]);
      const std::string text = difference(hashes, replicas.world_ranks());
      if (text.empty()) continue;
      throw core::Error(core::ErrorCode::kInternal,
                        cat(all[i]->spec.key, ": ", text,
                            ": their memory or their processors return other bits, or this is a bug. Continue from a "
                            "checkpoint on other machines; if it happens again, report it"));
    }
  });
}

}  // namespace

void check_weight_hashes(const ParameterStore& parameters, ProcessGroups& groups) {
  check_replicas(parameters, layout::Group::kDpCp, groups);
  if (layout::experts_apart(groups.grid)) check_replicas(parameters, layout::Group::kExpertDp, groups);
}

void ReplicaCheck::at(int64_t iteration) {
  const bool is_due = interval_ > 0 && (first_ || iteration % interval_ == 0);
  first_ = false;
  if (!is_due) return;
  const core::FlightPhase phase(groups_.world.endpoint().flight(), "weight-hash");
  optimizer_.await_weights();
  check_weight_hashes(parameters_, groups_);
  core::log_info("train.weights", cat("weight hashes match after ", iteration, " iterations"));
}

}  // namespace ms::train
