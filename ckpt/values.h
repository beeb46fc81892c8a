// Statistics of a tensor's values, and element-wise comparison of two tensors. Both stream, 8 MiB at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/source.h"

namespace ms::ckpt {

struct TensorStatistics {
  int64_t elements = 0, nans = 0, infinities = 0, zeros = 0;
  // Of the finite elements, in double; 0 if there are none.
  double min = 0, max = 0, mean = 0, standard_deviation = 0;
  // Counts of the finite elements in equal parts of [min, max]; the last part includes max.
  std::vector<int64_t> histogram;
};

// Reads the tensor (an index into source.shards()) twice: for the numbers, and for the histogram with `bins` parts.
// Throws kUnsupported for a dtype that is not numeric, and as Source::read.
TensorStatistics tensor_statistics(Source& source, int32_t tensor, int bins = 20);

// Elements that are no finite number.
struct NonFinite {
  int64_t nan = 0, infinite = 0;
  int64_t count() const { return nan + infinite; }
};
std::string text_of(const NonFinite& elements);  // "16384 NaN", "1 NaN and 3 infinite"

struct ValueDifference {
  int64_t elements = 0, differing = 0;  // NaNs with equal bits do not differ, nor do 0 and 0; -0 and 0 do
  // Over elements that are finite on both sides: largest |a - b|, and |a - b| / |a|.
  double max_abs = 0, relative_l2 = 0;
  NonFinite only_first, only_second;  // of elements that are finite on the other side
  NonFinite both;                     // not finite on either side, by what they are on the first
  core::Dims first;                   // the first differing element in row-major order
  double first_a = 0, first_b = 0;
};

struct TensorPair {
  int32_t a = 0, b = 0;  // tensor indices of two tables; same global shape
};

struct CompareOptions {
  int threads = 1;                                            // each holds about 24 MiB
  std::function<bool()> stopped;                              // throws kIo "interrupted" when true; may be empty
  std::function<void(int64_t done, int64_t total)> progress;  // bytes of a; from one thread at a time; may be empty
};

// Compares tensors of the same shape element by element, reading each once. Dtypes are the same, or two of fp32, bf16
// and fp16, whose values are compared. Throws kInvalidArgument if not, and as Source::read.
std::vector<ValueDifference> differences_of(Source& a, Source& b, std::span<const TensorPair> pairs,
                                            const CompareOptions& options = {});

// The same of equal dtypes, where nullopt says that all bits are equal.
std::vector<std::optional<ValueDifference>> compare_values(Source& a, Source& b, std::span<const TensorPair> pairs,
                                                           const CompareOptions& options = {});

}  // namespace ms::ckpt
