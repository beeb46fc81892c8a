#include "ckpt/values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "ckpt/detail/paired_reading.h"
#include "ckpt/detail/typed_values.h"
#include "core/error.h"
#include "core/layout/box.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::DType;
using core::Error;
using core::ErrorCode;
using detail::to_double;
using detail::with_type;

constexpr int64_t kPieceBytes = int64_t{8} << 20;

// Calls `use` for boxes of at most kPieceBytes of the tensor's shards, except replicas.
void for_each_piece(const ShardTable& table, int32_t tensor,
                    const std::function<void(int32_t shard, const layout::Box&)>& use) {
  for (size_t i = 0; i < table.size(); ++i) {
    if (table.tensor_of(i) != tensor || table.replica_id(i) != 0) continue;
    const int64_t total = table.elements(i), step = kPieceBytes / core::size_of(table.dtype_of(i));
    for (int64_t first = 0; first < total; first += step) {
      layout::for_each_box_of_range(table.extents(i), first, std::min(step, total - first),
                                    [&](const layout::Box& box, int64_t) { use(static_cast<int32_t>(i), box); });
    }
  }
}

// Calls `use` with every element of the tensor as a double.
void for_each_value(Source& source, int32_t tensor, const std::function<void(double)>& use) {
  std::vector<std::byte> bytes;
  for_each_piece(source.shards(), tensor, [&](int32_t shard, const layout::Box& box) {
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

namespace {

// Sums over the pieces of a tensor. They are kept per piece and added in order: the result does not depend on the order
// in which threads finish.
struct Tally {
  ValueDifference difference;
  int64_t first = std::numeric_limits<int64_t>::max();  // flat index in the tensor
  std::map<size_t, std::pair<double, double>> squares;  // by piece: of a, of a - b
};

core::Dims global_place(const core::ShardedTensor& piece, int64_t flat) {
  core::Dims place(piece.global_offset);
  for (size_t axis = place.size(); axis-- > 0; flat /= piece.local_shape[axis]) {
    place[axis] += flat % piece.local_shape[axis];
  }
  return place;
}

void count(NonFinite& elements, double x) { ++(std::isnan(x) ? elements.nan : elements.infinite); }

// Of the finite elements; counts the others.
template <class T>
double sum_of_squares(const std::byte* data, int64_t elements, NonFinite& others) {
  double sums[4] = {};
  T value;
  for (int64_t i = 0; i < elements; ++i) {
    std::memcpy(&value, data + static_cast<size_t>(i) * sizeof value, sizeof value);
    const double x = to_double(value);
    if (std::isfinite(x)) {
      sums[i % 4] += x * x;
    } else {
      count(others, x);
    }
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Adds what two different elements differ by.
void add(ValueDifference& found, double& squares, double x, double y) {
  ++found.differing;
  const bool x_is_finite = std::isfinite(x), y_is_finite = std::isfinite(y);
  if (x_is_finite && y_is_finite) {
    found.max_abs = std::max(found.max_abs, std::abs(x - y));
    squares += (x - y) * (x - y);
    return;
  }
  if (x_is_finite) return count(found.only_second, y);
  if (!y_is_finite) return;  // counted with those of a
  count(found.only_first, x);
  --(std::isnan(x) ? found.both.nan : found.both.infinite);
}

template <class T>
Tally compare_piece(const detail::PairedPiece& piece) {
  Tally tally;
  const int64_t elements = core::num_elements(piece.place.local_shape);
  ValueDifference& found = tally.difference;
  found.elements = elements;
  auto& [a_squares, difference_squares] = tally.squares[piece.number];
  a_squares = sum_of_squares<T>(piece.a.data(), elements, found.both);
  if (std::memcmp(piece.a.data(), piece.b.data(), piece.a.size()) == 0) return tally;
  T left, right;
  for (int64_t i = 0; i < elements; ++i) {
    const auto at = static_cast<size_t>(i) * sizeof left;
    if (std::memcmp(piece.a.data() + at, piece.b.data() + at, sizeof left) == 0) continue;
    std::memcpy(&left, piece.a.data() + at, sizeof left);
    std::memcpy(&right, piece.b.data() + at, sizeof right);
    const double x = to_double(left), y = to_double(right);
    add(found, difference_squares, x, y);
    const core::Dims place = global_place(piece.place, i);
    const int64_t flat = layout::flat_index(piece.place.global_shape, place);
    if (flat >= tally.first) continue;
    tally.first = flat;
    found.first = place;
    found.first_a = x;
    found.first_b = y;
  }
  return tally;
}

// Both sides in fp32, which has every value of bf16 and fp16.
Tally compare_in_fp32(const detail::PairedPiece& piece, DType second) {
  const int64_t elements = core::num_elements(piece.place.local_shape);
  const auto widened = [&](std::span<const std::byte> values, DType dtype) {
    std::vector<std::byte> wide(static_cast<size_t>(elements) * sizeof(float));
    detail::round_elements(values.data(), dtype, wide.data(), DType::kFp32, elements);
    return wide;
  };
  const std::vector<std::byte> a = widened(piece.a, piece.place.dtype), b = widened(piece.b, second);
  detail::PairedPiece wide = piece;
  wide.a = a;
  wide.b = b;
  return compare_piece<float>(wide);
}

NonFinite& operator+=(NonFinite& all, const NonFinite& more) {
  all.nan += more.nan;
  all.infinite += more.infinite;
  return all;
}

void add(Tally& all, Tally piece) {
  all.difference.elements += piece.difference.elements;
  all.difference.differing += piece.difference.differing;
  all.difference.max_abs = std::max(all.difference.max_abs, piece.difference.max_abs);
  all.difference.only_first += piece.difference.only_first;
  all.difference.only_second += piece.difference.only_second;
  all.difference.both += piece.difference.both;
  if (piece.first < all.first) {
    all.first = piece.first;
    all.difference.first = piece.difference.first;
    all.difference.first_a = piece.difference.first_a;
    all.difference.first_b = piece.difference.first_b;
  }
  all.squares.merge(piece.squares);
}

}  // namespace

std::string text_of(const NonFinite& elements) {
  if (elements.infinite == 0) return cat(elements.nan, " NaN");
  return cat(elements.nan > 0 ? cat(elements.nan, " NaN and ") : std::string(), elements.infinite, " infinite");
}

std::vector<ValueDifference> differences_of(Source& a, Source& b, std::span<const TensorPair> pairs,
                                            const CompareOptions& options) {
  const ShardTable &first = a.shards(), &second = b.shards();
  for (const TensorPair& pair : pairs) {
    const auto shape = first.global_shape(pair.a), other = second.global_shape(pair.b);
    if (std::equal(shape.begin(), shape.end(), other.begin(), other.end()) &&
        detail::is_convertible(second.dtype(pair.b), first.dtype(pair.a))) {
      continue;
    }
    throw Error(ErrorCode::kInvalidArgument,
                cat(first.key(pair.a), ": ", core::dtype_name(first.dtype(pair.a)), shape, " cannot be compared with ",
                    core::dtype_name(second.dtype(pair.b)), other));
  }
  std::vector<Tally> tallies(pairs.size());
  std::mutex mutex;
  detail::PairedReadingOptions how;
  how.threads = options.threads;
  how.stopped = options.stopped;
  how.progress = options.progress;
  detail::PairedReading reading(a, b, pairs, how);
  reading.run([&](const detail::PairedPiece& piece) {
    const DType dtype = piece.place.dtype, its = second.dtype(pairs[piece.pair].b);
    Tally tally = dtype == its ? with_type(dtype, [&](auto type) { return compare_piece<decltype(type)>(piece); })
                               : compare_in_fp32(piece, its);
    std::lock_guard lock(mutex);
    add(tallies[piece.pair], std::move(tally));
  });
  std::vector<ValueDifference> differences;
  for (Tally& tally : tallies) {
    double a_squares = 0, squares = 0;
    for (const auto& [number, sums] : tally.squares) {
      a_squares += sums.first;
      squares += sums.second;
    }
    tally.difference.relative_l2 = a_squares > 0 ? std::sqrt(squares / a_squares)
                                   : squares > 0 ? std::numeric_limits<double>::infinity()
                                                 : 0;
    differences.push_back(std::move(tally.difference));
  }
  return differences;
}

std::vector<std::optional<ValueDifference>> compare_values(Source& a, Source& b, std::span<const TensorPair> pairs,
                                                           const CompareOptions& options) {
  for (const TensorPair& pair : pairs) {
    const DType dtype = a.shards().dtype(pair.a), its = b.shards().dtype(pair.b);
    if (dtype != its)
      throw Error(ErrorCode::kInvalidArgument, cat(a.shards().key(pair.a), ": ", core::dtype_name(dtype),
                                                   " cannot be compared with ", core::dtype_name(its)));
  }
  std::vector<std::optional<ValueDifference>> differing;
  for (ValueDifference& difference : differences_of(a, b, pairs, options)) {
    differing.emplace_back();
    if (difference.differing > 0) differing.back() = std::move(difference);
  }
  return differing;
}

}  // namespace ms::ckpt
