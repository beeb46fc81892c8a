#include "ckpt/diff.h"

#include <algorithm>
#include <optional>

#include "core/error.h"

namespace ms::ckpt {

using core::cat;

std::string difference_text(const ValueDifference& values) {
  std::string text = cat("values differ: ", values.differing, " of ", values.elements, " elements");
  const int64_t not_finite = values.only_first.count() + values.only_second.count();
  if (values.only_first.count() > 0) text += cat(", ", text_of(values.only_first), " only in the first");
  if (values.only_second.count() > 0) text += cat(", ", text_of(values.only_second), " only in the second");
  if (values.differing > not_finite)
    text +=
        cat(", max abs ", values.max_abs, ", relative L2 ", values.relative_l2, not_finite > 0 ? " of the others" : "");
  return cat(text, ", first at ", values.first, ": ", values.first_a, " and ", values.first_b);
}

std::string recorded_hashes_text(const DiffReport& report) {
  if (report.by_hash == 0) return "";
  return cat(", ", report.by_hash, report.by_hash == 1 ? " tensor by its" : " tensors by their",
             " recorded hashes only, without reading the data");
}

DiffReport diff_checkpoints(Source& a, Source& b, const DiffOptions& options) {
  const ShardTable &first = a.shards(), &second = b.shards();
  const auto wanted = [&](core::TensorRole role) {
    return !options.weights_only || role == core::TensorRole::kParam || role == core::TensorRole::kBuffer;
  };
  DiffReport report;
  std::vector<std::string> texts(first.num_tensors());
  std::vector<TensorPair> pairs;
  for (size_t t = 0; t < first.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    if (!wanted(first.role(tensor))) continue;
    const auto found = second.find(first.key(tensor), first.role(tensor));
    if (!found) {
      texts[t] = "only in the first";
      continue;
    }
    const auto shape = first.global_shape(tensor), other = second.global_shape(*found);
    if (!std::equal(shape.begin(), shape.end(), other.begin(), other.end())) {
      texts[t] = cat("shape ", shape, " and ", other);
      continue;
    }
    if (first.dtype(tensor) != second.dtype(*found)) {
      texts[t] = cat("dtype ", core::dtype_name(first.dtype(tensor)), " and ", core::dtype_name(second.dtype(*found)));
      continue;
    }
    if (options.by_recorded_hashes) {
      const std::string key(first.key(tensor));
      const auto hash = a.logical_xxh3(key, first.role(tensor)), its = b.logical_xxh3(key, first.role(tensor));
      if (hash && its) {
        if (*hash == *its) {
          ++report.by_hash;
          continue;
        }
        texts[t] = "the recorded logical hashes differ, but no value does";  // unless reading them shows one
      }
    }
    pairs.push_back({tensor, *found});
  }
  CompareOptions reading;
  reading.threads = options.threads;
  reading.stopped = options.stopped;
  reading.progress = options.progress;
  const auto values = compare_values(a, b, pairs, reading);
  for (size_t p = 0; p < pairs.size(); ++p) {
    if (values[p]) texts[static_cast<size_t>(pairs[p].a)] = difference_text(*values[p]);
  }
  report.compared = static_cast<int64_t>(pairs.size());
  for (size_t t = 0; t < first.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    if (!texts[t].empty()) {
      report.differences.push_back({std::string(first.key(tensor)), first.role(tensor), std::move(texts[t])});
    }
  }
  for (size_t t = 0; t < second.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    if (wanted(second.role(tensor)) && !first.find(second.key(tensor), second.role(tensor))) {
      report.differences.push_back({std::string(second.key(tensor)), second.role(tensor), "only in the second"});
    }
  }
  return report;
}

}  // namespace ms::ckpt
