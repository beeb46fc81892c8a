#include "ckpt/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "ckpt/box.h"
#include "ckpt/plan.h"
#include "core/error.h"
#include "kernels/bf16.h"
#include "kernels/fp16.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::DType;
using core::Error;
using core::ErrorCode;

constexpr int64_t kPieceBytes = int64_t{8} << 20;

// Calls use(element type) for the dtype.
template <class Use>
auto with_type(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kFp32:
      return use(float());
    case DType::kFp64:
      return use(double());
    case DType::kBf16:
      return use(kernels::bf16());
    case DType::kFp16:
      return use(kernels::fp16());
    case DType::kInt8:
      return use(int8_t());
    case DType::kUInt8:
    case DType::kBool:
      return use(uint8_t());
    case DType::kInt16:
      return use(int16_t());
    case DType::kUInt16:
      return use(uint16_t());
    case DType::kInt32:
      return use(int32_t());
    case DType::kInt64:
      return use(int64_t());
  }
  throw Error(ErrorCode::kUnsupported, cat("values of ", core::dtype_name(dtype), " cannot be looked at"));
}

double to_double(kernels::bf16 value) { return kernels::to_float(value); }
double to_double(kernels::fp16 value) { return kernels::to_float(value); }
template <class T>
double to_double(T value) {
  return static_cast<double>(value);
}

// The tensor's shards that are not replicas, cut into boxes of at most kPieceBytes.
void for_each_piece(const ShardTable& table, int32_t tensor,
                    const std::function<void(int32_t shard, const Box&)>& use) {
  for (size_t i = 0; i < table.size(); ++i) {
    if (table.tensor_of(i) != tensor || table.replica_id(i) != 0) continue;
    const int64_t total = table.elements(i), step = kPieceBytes / core::size_of(table.dtype_of(i));
    for (int64_t first = 0; first < total; first += step) {
      for_each_box_of_range(table.extents(i), first, std::min(step, total - first),
                            [&](const Box& box, int64_t) { use(static_cast<int32_t>(i), box); });
    }
  }
}

// Every element of the tensor as a double.
void for_each_value(Source& source, int32_t tensor, const std::function<void(double)>& use) {
  std::vector<std::byte> bytes;
  for_each_piece(source.shards(), tensor, [&](int32_t shard, const Box& box) {
    const DType dtype = source.shards().dtype_of(static_cast<size_t>(shard));
    const int64_t count = core::num_elements(box.extent);
    bytes.resize(static_cast<size_t>(count * core::size_of(dtype)));
    source.read(shard, box.offset, box.extent, bytes.data());
    with_type(dtype, [&](auto type) {
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(&type, bytes.data() + static_cast<size_t>(i) * sizeof type, sizeof type);
        use(to_double(type));
      }
    });
  });
}

}  // namespace

TensorStatistics tensor_statistics(Source& source, int32_t tensor, int bins) {
  TensorStatistics result;
  double mean = 0, squares = 0;  // Welford's update
  int64_t finite = 0;
  for_each_value(source, tensor, [&](double value) {
    ++result.elements;
    result.nans += std::isnan(value);
    result.infinities += std::isinf(value);
    result.zeros += value == 0;
    if (!std::isfinite(value)) return;
    result.min = finite == 0 ? value : std::min(result.min, value);
    result.max = finite == 0 ? value : std::max(result.max, value);
    ++finite;
    const double step = value - mean;
    mean += step / static_cast<double>(finite);
    squares += step * (value - mean);
  });
  result.histogram.assign(static_cast<size_t>(bins), 0);
  if (finite == 0) return result;
  result.mean = mean;
  result.standard_deviation = std::sqrt(squares / static_cast<double>(finite));
  const double width = result.max - result.min;
  for_each_value(source, tensor, [&](double value) {
    if (!std::isfinite(value)) return;
    const double place = width > 0 ? (value - result.min) / width * bins : 0;
    ++result.histogram[static_cast<size_t>(std::clamp(static_cast<int>(place), 0, bins - 1))];
  });
  return result;
}

std::optional<ValueDifference> compare_values(Source& a, int32_t tensor_a, Source& b, int32_t tensor_b) {
  const ShardTable& table = a.shards();
  const auto shape_span = table.global_shape(tensor_a), shape_b = b.shards().global_shape(tensor_b);
  const core::Dims shape(shape_span.begin(), shape_span.end());
  MS_CHECK(std::equal(shape.begin(), shape.end(), shape_b.begin(), shape_b.end()), "shapes differ");
  ValueDifference result;
  double difference_squares = 0, a_squares = 0;
  int64_t first = std::numeric_limits<int64_t>::max();
  // What is read at a time of a, as targets of a plan that fills the same from b.
  ShardTable pieces;
  std::vector<std::pair<int32_t, Box>> places;
  for_each_piece(table, tensor_a, [&](int32_t shard, const Box& box) {
    core::ShardedTensor piece = table[static_cast<size_t>(shard)];
    for (size_t axis = 0; axis < box.offset.size(); ++axis) piece.global_offset[axis] += box.offset[axis];
    piece.local_shape = box.extent;
    pieces.push_back(piece);
    places.emplace_back(shard, box);
  });
  Planner planner(b.shards(), pieces);
  std::vector<std::byte> bytes_a, bytes_b;
  for (size_t p = 0; p < places.size(); ++p) {
    const auto& [shard, box] = places[p];
    const core::ShardedTensor piece = pieces[p];
    const DType dtype = piece.dtype;
    const int64_t count = core::num_elements(box.extent);
    bytes_a.resize(static_cast<size_t>(count * core::size_of(dtype)));
    bytes_b.resize(bytes_a.size());
    a.read(shard, box.offset, box.extent, bytes_a.data());
    planner.copies_of(static_cast<int32_t>(p), [&](const CopyRegion& copy) {
      b.read_into(copy.source_shard, copy.source_offset, copy.extent, bytes_b.data(), piece.local_shape,
                  copy.target_offset);
    });
    result.elements += count;
    with_type(dtype, [&](auto type) {
      for (int64_t i = 0; i < count; ++i) {
        auto other = type;
        std::memcpy(&type, bytes_a.data() + static_cast<size_t>(i) * sizeof type, sizeof type);
        std::memcpy(&other, bytes_b.data() + static_cast<size_t>(i) * sizeof type, sizeof type);
        const double x = to_double(type), y = to_double(other);
        const bool finite = std::isfinite(x) && std::isfinite(y);
        if (finite) a_squares += x * x;
        if (std::memcmp(&type, &other, sizeof type) == 0) continue;
        ++result.differing;
        result.max_abs = std::max(result.max_abs, finite ? std::abs(x - y) : std::numeric_limits<double>::infinity());
        if (finite) difference_squares += (x - y) * (x - y);
        core::Dims place(piece.global_offset);
        int64_t rest = i;
        for (size_t axis = place.size(); axis-- > 0; rest /= piece.local_shape[axis]) {
          place[axis] += rest % piece.local_shape[axis];
        }
        if (const int64_t flat = flat_index(shape, place); flat < first) {
          first = flat;
          result.first = place;
          result.first_a = x;
          result.first_b = y;
        }
      }
    });
  }
  if (result.differing == 0) return std::nullopt;
  result.relative_l2 = a_squares > 0            ? std::sqrt(difference_squares / a_squares)
                       : difference_squares > 0 ? std::numeric_limits<double>::infinity()
                                                : 0;
  return result;
}

}  // namespace ms::ckpt
