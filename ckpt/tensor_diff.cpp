#include "ckpt/tensor_diff.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "ckpt/detail/paired_reading.h"
#include "ckpt/recording.h"
#include "ckpt/values.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/layout/recorded_tensors.h"

namespace ms::ckpt {
namespace {

using core::cat;

// Of what the perturbed run differs by: see the header.
constexpr double kNoiseFactor = 3;

core::DType coarser(core::DType a, core::DType b) {
  const auto rank = [](core::DType dtype) {
    return dtype == core::DType::kBf16 ? 2 : dtype == core::DType::kFp16 ? 1 : 0;
  };
  return rank(a) >= rank(b) ? a : b;
}

// In which a run computes: weights' gradients are fp32 in a bf16 run too.
core::DType dtype_of(const Source& source) {
  if (const auto recording = recording_of(source.info()); recording && recording->dtype) return *recording->dtype;
  core::DType dtype = core::DType::kFp32;
  const ShardTable& table = source.shards();
  for (size_t t = 0; t < table.num_tensors(); ++t) dtype = coarser(dtype, table.dtype(static_cast<int32_t>(t)));
  return dtype;
}

// The least that a perturbation counts as.
double rounding(core::DType dtype) {
  if (dtype == core::DType::kBf16) return 0x1p-8;
  return dtype == core::DType::kFp16 ? 0x1p-11 : 4 * 0x1p-23;
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

std::string name_of(const TensorKey& key) {
  return key.second == core::TensorRole::kBuffer ? key.first : cat(key.first, " (", core::role_name(key.second), ")");
}

void check_noise(const Source& a, const Source& noise) {
  const auto refuse = [](const std::string& text) { throw core::Error(core::ErrorCode::kInvalidArgument, text); };
  const std::optional<Recording> recording = recording_of(noise.info());
  if (!recording || recording->perturbation.value_or(0) == 0)
    refuse(cat("the third run is not one of --save-tensors-perturbation",
               recording && !recording->perturbation ? ", as far as its folder says" : "",
               ": it does not measure rounding. Record it with the perturbation, in the first one's layout"));
  if (noise.info().iteration != a.info().iteration)
    refuse(cat("the perturbed run has iteration ", noise.info().iteration, ", the first ", a.info().iteration));
}

// Two of a kind, the noise of the same iteration as a.
void check_kinds(const Source& a, const Source& b, const Source* noise) {
  const auto refuse = [](const std::string& text) { throw core::Error(core::ErrorCode::kInvalidArgument, text); };
  const auto is_checkpoint = [](const Source& source) {
    return source.info().has_model && !is_recording(source.info());
  };
  if (is_checkpoint(a) && is_checkpoint(b))
    refuse(
        "both are checkpoints, neither holds what modules computed (mstrain --save-tensors): compare them without "
        "--tensors");
  if (is_checkpoint(a) || is_checkpoint(b)) {
    refuse(cat("the ", is_checkpoint(b) ? "first" : "second",
               " holds what modules computed (mstrain --save-tensors), the other one is a checkpoint"));
  }
  if (noise != nullptr) check_noise(a, *noise);
  if (a.shards().num_tensors() == 0) refuse("the first holds no tensor: did --save-tensors-filter leave none?");
}

// What keeps a tensor from being compared; empty: nothing.
std::string fault_of(const ShardTable& a, int32_t tensor, const ShardTable& b, int32_t other) {
  const auto shape = a.global_shape(tensor), its = b.global_shape(other);
  if (!std::ranges::equal(shape, its)) return cat("shape ", shape, " and ", its);
  if (detail::is_convertible(b.dtype(other), a.dtype(tensor))) return "";
  return cat("dtype ", core::dtype_name(a.dtype(tensor)), " and ", core::dtype_name(b.dtype(other)));
}

// The rows, and of those whose values are compared the tensors of a and b.
struct Matched {
  std::vector<TensorDistance> rows;
  std::vector<TensorPair> pairs;
  std::vector<size_t> row_of;  // of each pair
};

Matched match(const Source& a, const Source& b, const std::vector<TensorRename>& renames) {
  const ShardTable &first = a.shards(), &second = b.shards();
  std::map<TensorKey, int32_t> others = renamed_tensors(second, renames);
  Matched result;
  for (const int32_t tensor : in_order(a)) {
    const TensorKey key(first.key(tensor), first.role(tensor));
    TensorDistance& row = result.rows.emplace_back();
    row.tensor = name_of(key);
    const auto other = others.find(key);
    row.is_absent = other == others.end();
    row.fault = row.is_absent ? "only in the first" : fault_of(first, tensor, second, other->second);
    if (row.is_absent) continue;
    if (row.fault.empty()) {
      result.pairs.push_back({tensor, other->second});
      result.row_of.push_back(result.rows.size() - 1);
    }
    others.erase(other);
  }
  for (const auto& [key, tensor] : others)
    result.rows.push_back({.tensor = name_of(key), .fault = "only in the second", .is_absent = true});
  return result;
}

CompareOptions reading_of(const TensorDiffOptions& options) {
  CompareOptions reading;
  reading.threads = options.threads;
  reading.stopped = options.stopped;
  reading.progress = options.progress;
  return reading;
}

void fill(TensorDistance& row, const ValueDifference& values) {
  row.is_identical = values.differing == 0 && values.both.count() == 0;
  row.relative_l2 = values.relative_l2;
  row.max_abs = values.max_abs;
  if (values.both.count() > 0) row.incomparable = text_of(values.both);
  for (const auto& [elements, which] :
       {std::pair{values.only_first, "the first"}, std::pair{values.only_second, "the second"}}) {
    if (elements.count() > 0) row.fault += cat(row.fault.empty() ? "" : ", ", text_of(elements), " only in ", which);
  }
}

// What the perturbed run differs from the first by, of each pair.
std::vector<double> measured_rounding(Source& a, Source& noise, const Matched& matched,
                                      const TensorDiffOptions& options) {
  const ShardTable &first = a.shards(), &perturbed = noise.shards();
  const auto refuse = [&](size_t pair, const std::string& fault) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      cat("the perturbed run's ", matched.rows[matched.row_of[pair]].tensor, ": ", fault));
  };
  std::vector<TensorPair> pairs;
  for (size_t p = 0; p < matched.pairs.size(); ++p) {
    const int32_t tensor = matched.pairs[p].a;
    const auto found = perturbed.find(first.key(tensor), first.role(tensor));
    const std::string fault = found ? fault_of(first, tensor, perturbed, *found) : "it is not there";
    if (!fault.empty()) refuse(p, fault);
    pairs.push_back({tensor, *found});
  }
  std::vector<double> distances;
  const std::vector<ValueDifference> values = differences_of(a, noise, pairs, reading_of(options));
  for (size_t p = 0; p < pairs.size(); ++p) {
    if (values[p].only_second.count() > 0)
      refuse(p, cat(text_of(values[p].only_second), " where the first is finite: it does not measure rounding"));
    distances.push_back(values[p].relative_l2);
  }
  return distances;
}

// Groups of the configuration that say where and how a run computes, not what.
bool is_circumstance(std::string_view group) {
  return group == "parallel" || group == "logger" || group == "profiling" || group == "checkpoint";
}

}  // namespace

std::vector<TensorDistance> diff_tensors(Source& a, Source& b, const TensorDiffOptions& options) {
  check_kinds(a, b, options.noise);
  const core::DType dtype = coarser(dtype_of(a), dtype_of(b));
  Matched matched = match(a, b, options.renames);
  std::vector<double> noise;
  if (options.noise != nullptr) noise = measured_rounding(a, *options.noise, matched, options);
  const std::vector<ValueDifference> values = differences_of(a, b, matched.pairs, reading_of(options));
  for (size_t p = 0; p < values.size(); ++p) {
    TensorDistance& row = matched.rows[matched.row_of[p]];
    fill(row, values[p]);
    row.allowed = options.noise != nullptr ? kNoiseFactor * std::max(noise[p], rounding(dtype))
                                           : options.tolerance.value_or(default_tolerance(dtype));
  }
  return std::move(matched.rows);
}

std::vector<size_t> renames_without_effect(const Source& b, const std::vector<TensorRename>& renames) {
  std::vector<bool> matches(renames.size(), false);
  for (size_t t = 0; t < b.shards().num_tensors(); ++t) {
    std::string name(b.shards().key(static_cast<int32_t>(t)));
    for (size_t r = 0; r < renames.size(); ++r) {
      const std::string before = std::exchange(name, std::regex_replace(name, renames[r].from, renames[r].to));
      if (name != before) matches[r] = true;
    }
  }
  std::vector<size_t> idle;
  for (size_t r = 0; r < renames.size(); ++r) {
    if (!matches[r]) idle.push_back(r);
  }
  return idle;
}

std::vector<std::string> config_differences(const Source& a, const Source& b) {
  const auto config_of = [](const Source& source) {
    const nlohmann::json& common = source.info().common;
    return common.is_object() ? common.value("config", nlohmann::json()) : nlohmann::json();
  };
  const nlohmann::json first = config_of(a), second = config_of(b);
  std::vector<std::string> differences;
  if (!first.is_object() || !second.is_object()) return differences;
  for (const auto& [group, fields] : first.items()) {
    if (is_circumstance(group) || !fields.is_object()) continue;
    const nlohmann::json others = second.value(group, nlohmann::json::object());
    for (const auto& [field, value] : fields.items()) {
      if (others.is_object() && others.contains(field) && others[field] != value)
        differences.push_back(
            cat(group, '.', field, ' ', core::dump_json(value), " and ", core::dump_json(others[field])));
    }
  }
  return differences;
}

}  // namespace ms::ckpt
