#include "ckpt/tensor_diff.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ckpt/recording.h"
#include "ckpt/values.h"
#include "core/error.h"
#include "core/layout/recorded_tensors.h"

namespace ms::ckpt {
namespace {

using core::cat;

// Rounding of this many perturbations of the size that was measured.
constexpr double kNoiseFactor = 10;

// Of a run: weights' gradients are fp32 in a bf16 run too.
core::DType coarsest_dtype(const ShardTable& table) {
  core::DType coarsest = core::DType::kFp32;
  for (size_t t = 0; t < table.num_tensors(); ++t) {
    const core::DType dtype = table.dtype(static_cast<int32_t>(t));
    if (dtype == core::DType::kBf16 || (dtype == core::DType::kFp16 && coarsest == core::DType::kFp32))
      coarsest = dtype;
  }
  return coarsest;
}

double rounding(core::DType dtype) {
  if (dtype == core::DType::kBf16) return 0x1p-8;
  return dtype == core::DType::kFp16 ? 0x1p-11 : 0x1p-23;
}

// Without a measurement: about what rounding adds up to in some dozen layers.
double default_tolerance(core::DType dtype) {
  if (dtype == core::DType::kBf16) return 0.1;
  return dtype == core::DType::kFp16 ? 0.01 : 1e-4;
}

// The tensors of a, in the order of execution.
std::vector<int32_t> in_order(const Source& a) {
  const ShardTable& table = a.shards();
  std::map<std::string, size_t> positions;
  if (a.info().has_model) {
    for (const std::string& name : layout::recorded_tensors(a.info().model)) positions.emplace(name, positions.size());
  }
  const auto position = [&](int32_t tensor) {
    const auto found = positions.find(std::string(table.key(tensor)));
    return found == positions.end() ? positions.size() : found->second;
  };
  std::vector<int32_t> order(table.num_tensors());
  for (size_t t = 0; t < order.size(); ++t) order[t] = static_cast<int32_t>(t);
  std::ranges::stable_sort(order, {}, position);
  return order;
}

using TensorKey = std::pair<std::string, core::TensorRole>;

// The tensors of b, by the names that they have in a.
std::map<TensorKey, int32_t> renamed_tensors(const ShardTable& b, const std::vector<TensorRename>& renames) {
  std::map<TensorKey, int32_t> tensors;
  for (size_t t = 0; t < b.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    std::string name(b.key(tensor));
    for (const TensorRename& rename : renames) name = std::regex_replace(name, rename.from, rename.to);
    const auto [at, is_new] = tensors.emplace(TensorKey(name, b.role(tensor)), tensor);
    if (is_new) continue;
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      cat("two tensors of the second become ", name, ": ", b.key(at->second), " and ", b.key(tensor)));
  }
  return tensors;
}

std::string text_of(const TensorKey& key) {
  return key.second == core::TensorRole::kBuffer ? key.first : cat(key.first, " (", core::role_name(key.second), ")");
}

// Two of a kind, the noise of the same iteration as a.
void check_kinds(const Source& a, const Source& b, const Source* noise) {
  const auto refuse = [](const std::string& text) { throw core::Error(core::ErrorCode::kInvalidArgument, text); };
  if (a.info().has_model && b.info().has_model && is_recording(a.info()) != is_recording(b.info())) {
    refuse(cat("the ", is_recording(a.info()) ? "first" : "second",
               " holds what modules computed (mstrain --save-tensors), the other one is a checkpoint"));
  }
  if (noise != nullptr && noise->info().iteration != a.info().iteration) {
    refuse(cat("the perturbed run has iteration ", noise->info().iteration, ", the first ", a.info().iteration));
  }
  if (a.shards().num_tensors() == 0) refuse("the first holds no tensor: did --save-tensors-filter leave none?");
}

// What keeps a tensor from being compared; empty: nothing.
std::string fault_of(const ShardTable& a, int32_t tensor, const ShardTable& b, int32_t other) {
  const auto shape = a.global_shape(tensor), its = b.global_shape(other);
  if (!std::ranges::equal(shape, its)) return cat("shape ", shape, " and ", its);
  if (a.dtype(tensor) == b.dtype(other)) return "";
  return cat("dtype ", core::dtype_name(a.dtype(tensor)), " and ", core::dtype_name(b.dtype(other)));
}

// The distances from a, of the same pairs in that order.
std::vector<std::optional<ValueDifference>> distances(Source& a, Source& b, const std::vector<TensorPair>& pairs,
                                                      const TensorDiffOptions& options) {
  CompareOptions reading;
  reading.threads = options.threads;
  reading.stopped = options.stopped;
  reading.progress = options.progress;
  return compare_values(a, b, pairs, reading);
}

}  // namespace

std::vector<TensorDistance> diff_tensors(Source& a, Source& b, const TensorDiffOptions& options) {
  check_kinds(a, b, options.noise);
  const ShardTable &first = a.shards(), &second = b.shards();
  const core::DType dtype = coarsest_dtype(first);
  std::map<TensorKey, int32_t> others = renamed_tensors(second, options.renames);
  std::vector<TensorDistance> result;
  std::vector<TensorPair> pairs, noisy;
  std::vector<size_t> compared;  // of result, for each pair
  for (const int32_t tensor : in_order(a)) {
    const TensorKey key(first.key(tensor), first.role(tensor));
    TensorDistance& row = result.emplace_back();
    row.tensor = text_of(key);
    const auto other = others.find(key);
    row.is_absent = other == others.end();
    row.fault = row.is_absent ? "only in the first" : fault_of(first, tensor, second, other->second);
    if (row.is_absent) continue;
    const int32_t its = other->second;
    others.erase(other);
    if (!row.fault.empty()) continue;
    row.allowed = options.tolerance > 0 ? options.tolerance : default_tolerance(dtype);
    pairs.push_back({tensor, its});
    compared.push_back(result.size() - 1);
    if (options.noise == nullptr) continue;
    const ShardTable& noise = options.noise->shards();
    const auto found = noise.find(key.first, key.second);
    const std::string fault = found ? fault_of(first, tensor, noise, *found) : "it is not there";
    if (!fault.empty())
      throw core::Error(core::ErrorCode::kInvalidArgument, cat("the perturbed run's ", row.tensor, ": ", fault));
    noisy.push_back({tensor, *found});
  }
  for (const auto& [key, tensor] : others)
    result.push_back({.tensor = text_of(key), .fault = "only in the second", .is_absent = true});

  const auto values = distances(a, b, pairs, options);
  for (size_t p = 0; p < pairs.size(); ++p) {
    if (!values[p]) continue;
    result[compared[p]].relative_l2 = values[p]->relative_l2;
    result[compared[p]].max_abs = values[p]->max_abs;
  }
  if (options.noise == nullptr) return result;
  const auto noise = distances(a, *options.noise, noisy, options);
  for (size_t p = 0; p < noisy.size(); ++p) {
    const double seen = noise[p] ? noise[p]->relative_l2 : 0;
    result[compared[p]].allowed = kNoiseFactor * std::max(seen, rounding(dtype));
  }
  return result;
}

}  // namespace ms::ckpt
