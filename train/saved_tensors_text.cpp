#include "train/saved_tensors_text.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/layout/formulas/saved_tensors.h"
#include "train/format.h"

namespace ms::train {

using core::cat;

namespace {

std::string slots_text(const std::vector<layout::SavedSlot>& slots) {
  std::string text;
  for (const layout::SavedSlot slot : slots) text += cat(text.empty() ? "" : ", ", layout::slot_name(slot));
  return text;
}

// "recompute input_norm, fc1; keep the rest": names for all decisions but the most frequent.
std::string decisions_text(const layout::SavedTensorsRow& row) {
  const std::pair<const char*, const std::vector<layout::SavedSlot>&> decisions[] = {
      {"keep", row.keep}, {"recompute", row.recompute}, {"swap", row.swap}};
  const auto& rest = *std::ranges::max_element(decisions, {}, [](const auto& of) { return of.second.size(); });
  std::string text;
  for (const auto& of : decisions) {
    if (&of != &rest && !of.second.empty()) text += cat(of.first, " ", slots_text(of.second), "; ");
  }
  return cat(text, rest.first, text.empty() ? " all" : " the rest");
}

}  // namespace

std::string layers_text(const std::vector<layout::LayerRange>& ranges) {
  std::string text;
  for (const layout::LayerRange& range : ranges) {
    if (range.count == 0) continue;
    if (!text.empty()) text += ", ";
    text += range.count == 1 ? cat(range.first) : cat(range.first, "-", range.first + range.count - 1);
  }
  return text.empty() ? "none" : text;
}

nlohmann::json saved_tensors_json(const layout::TrainingStep& step) {
  nlohmann::json rows = nlohmann::json::array();
  for (const layout::SavedTensorsRow& row : layout::saved_tensors(step)) {
    nlohmann::json entry = {{"layers", nlohmann::json::array()}, {"microbatches", row.microbatches}};
    for (const layout::LayerRange& range : row.layers)
      entry["layers"].push_back({{"first", range.first}, {"count", range.count}});
    for (const auto& [name, slots] :
         {std::pair{"keep", &row.keep}, {"recompute", &row.recompute}, {"swap", &row.swap}}) {
      entry[name] = nlohmann::json::array();
      for (const layout::SavedSlot slot : *slots) entry[name].push_back(layout::slot_name(slot));
    }
    rows.push_back(std::move(entry));
  }
  return rows;
}

nlohmann::json kv_cache_json(const layout::TrainingStep& step) {
  nlohmann::json rows = nlohmann::json::array();
  for (const layout::CachedBlocks& cached : layout::cached_blocks(step)) {
    nlohmann::json& row = rows.emplace_back(nlohmann::json{
        {"layers", nlohmann::json::array()}, {"blocks", cached.blocks}, {"bytes_per_layer", cached.bytes}});
    for (const layout::LayerRange& range : cached.layers)
      row["layers"].push_back({{"first", range.first}, {"count", range.count}});
  }
  return rows;
}

std::string saved_tensors_text(const layout::TrainingStep& step) {
  std::string text = "\nsaved tensors, between forward and backward of a layer\n  layers         micro-batches\n";
  for (const layout::SavedTensorsRow& row : layout::saved_tensors(step)) {
    text += format("  %-14s %13lld  ", layers_text(row.layers).c_str(), static_cast<long long>(row.microbatches)) +
            decisions_text(row) + "\n";
  }
  for (const layout::CachedBlocks& cached : layout::cached_blocks(step)) {
    text +=
        format("  %-14s %13lld  ", layers_text(cached.layers).c_str(), static_cast<long long>(step.num_microbatches)) +
        cat("k", step.kv_cache.policy == layout::KvCachePolicy::kFull ? " and v" : "", " include ", cached.blocks,
            " blocks that a ring has received") +
        format(", %.3f MiB a layer and micro-batch\n", mib(cached.bytes));
  }
  if (step.swap.tensors() && step.swap.min_bytes > 0)
    text += cat("  tensors below --swap-min-tensor-kib ", step.swap.min_bytes >> 10, " are kept\n");
  return text;
}

}  // namespace ms::train
