#include "ckpt/tensor_diff.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ckpt/values.h"
#include "core/error.h"
#include "core/layout/recorded_tensors.h"

namespace ms::ckpt {
namespace {

using core::cat;

// Rounding of this many perturbations of the size that was measured.
constexpr double kNoiseFactor = 10;

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

std::string renamed(std::string name, const std::vector<TensorRename>& renames) {
  for (const TensorRename& rename : renames) name = std::regex_replace(name, rename.from, rename.to);
  return name;
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
  const ShardTable &first = a.shards(), &second = b.shards();
  std::map<std::string, int32_t> others;  // tensors of b, by the names that they have in a
  for (size_t t = 0; t < second.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    others.emplace(renamed(std::string(second.key(tensor)), options.renames), tensor);
  }
  std::vector<TensorDistance> result;
  std::vector<TensorPair> pairs, noisy;
  std::vector<size_t> compared;  // of result, for each pair
  for (const int32_t tensor : in_order(a)) {
    TensorDistance& row = result.emplace_back();
    row.tensor = first.key(tensor);
    const auto other = others.find(row.tensor);
    row.fault = other == others.end() ? "only in the first" : fault_of(first, tensor, second, other->second);
    if (other == others.end()) continue;
    const int32_t its = other->second;
    others.erase(other);
    if (!row.fault.empty()) continue;
    row.allowed = options.tolerance > 0 ? options.tolerance : default_tolerance(first.dtype(tensor));
    pairs.push_back({tensor, its});
    compared.push_back(result.size() - 1);
    if (options.noise == nullptr) continue;
    const ShardTable& noise = options.noise->shards();
    const auto found = noise.find(row.tensor, first.role(tensor));
    const std::string fault = found ? fault_of(first, tensor, noise, *found) : "it is not there";
    if (!fault.empty())
      throw core::Error(core::ErrorCode::kInvalidArgument, cat("the perturbed run's ", row.tensor, ": ", fault));
    noisy.push_back({tensor, *found});
  }
  for (const auto& [name, tensor] : others) result.push_back({.tensor = name, .fault = "only in the second"});

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
    result[compared[p]].allowed = kNoiseFactor * std::max(seen, rounding(first.dtype(noisy[p].a)));
  }
  return result;
}

}  // namespace ms::ckpt
