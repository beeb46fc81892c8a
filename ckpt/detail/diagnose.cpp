#include "ckpt/detail/diagnose.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ckpt/detail/row_hashes.h"
#include "ckpt/detail/tensor_parts.h"
#include "ckpt/detail/typed_values.h"
#include "core/layout/box.h"

namespace ms::ckpt::detail {
namespace {

using core::cat;
using core::TensorRole;

constexpr double kOddScale = 16;        // times the siblings' median, or the reciprocal
constexpr size_t kMaxReadAgain = 256;   // maximum number of wrong tensors that are read again
constexpr size_t kMaxCandidates = 512;  // maximum number of other tensors to compare a part with
constexpr double kUncorrelated = 0.05;  // cosine
constexpr int64_t kFewElements = 256;   // too few for a meaningful cosine

// Layer and expert of a canonical name; -1: none.
struct Numbers {
  int64_t layer = -1, expert = -1;
};
int64_t number_after(std::string_view key, std::string_view word) {
  const size_t at = key.find(word);
  if (at == std::string_view::npos) return -1;
  int64_t number = -1;
  for (size_t i = at + word.size(); i < key.size() && key[i] >= '0' && key[i] <= '9'; ++i) {
    number = (number < 0 ? 0 : number * 10) + (key[i] - '0');
  }
  return number;
}
Numbers numbers_of(std::string_view key) { return {number_after(key, "layers."), number_after(key, "experts.")}; }

std::string name_of(const ShardTable& table, int32_t tensor) {
  const std::string key(table.key(tensor));
  return table.role(tensor) == TensorRole::kParam ? key : cat(core::role_name(table.role(tensor)), " of ", key);
}

bool same_shape(const ShardTable& a, int32_t x, const ShardTable& b, int32_t y) {
  const auto left = a.global_shape(x), right = b.global_shape(y);
  return std::equal(left.begin(), left.end(), right.begin(), right.end());
}

// Row and column hashes of both sides, and their correlation.
struct Comparison {
  Comparison(const TensorParts& parts, std::span<const int64_t> shape) : seen(parts, shape), expected(parts, shape) {}
  RowHashes seen, expected;
  double product = 0, seen_squares = 0, expected_squares = 0;
  double cosine() const {
    return seen_squares > 0 && expected_squares > 0 ? product / std::sqrt(seen_squares * expected_squares) : 0;
  }
};

class Diagnosis {
 public:
  Diagnosis(Source& source, Source& target, ProofReport& report, const std::vector<uint64_t>& expected,
            const ProveOptions& options)
      : source_(source),
        target_(target),
        from_(source.shards()),
        to_(target.shards()),
        report_(report),
        expected_(expected),
        options_(options),
        medians_(sibling_medians(report.tensors)),
        shards_of_source_(source.shards()) {
    for (size_t p = 0; p < expected.size(); ++p) holders_.emplace(expected[p], p);
    for (size_t p = 0; p < report.tensors.size(); ++p) pair_of_.emplace(name(p), p);
  }

  void run(const std::vector<WrongTensor>& wrong) {
    size_t read_again = 0;
    for (const WrongTensor& one : wrong) {
      Fault fault = simple_fault(one);
      if (fault.text.empty()) fault = whole_tensor(one);
      if (fault.text.empty() && read_again++ < kMaxReadAgain) fault = from_rows(one);
      if (fault.text.empty()) fault = from_statistics(one, 1, kFewElements);
      fault.tensor = report_.tensors[one.pair].key;
      fault.role = report_.tensors[one.pair].role;
      fault.place = cat(target_.describe(one.shard), ", first at ", one.first);
      report_.faults.push_back(std::move(fault));
    }
    summarise();
  }

 private:
  std::pair<std::string, TensorRole> name(size_t pair) const {
    return {report_.tensors[pair].key, report_.tensors[pair].role};
  }

  static std::string counts(const WrongTensor& one, int64_t elements) {
    return cat(one.differing, " of ", elements, " elements differ, the first is ", one.seen, " and should be ",
               one.expected);
  }

  // Faults that are visible from the element counts alone.
  Fault simple_fault(const WrongTensor& one) const {
    const ProvedTensor& tensor = report_.tensors[one.pair];
    const int64_t elements = core::num_elements(tensor.shape);
    const std::string all = one.differing == elements ? "all " : "";
    Fault fault;
    if (one.truncated == one.differing) {
      fault.kind = FaultKind::kTruncated;
      fault.text = cat(one.differing, " of ", elements, " elements were truncated to ", core::dtype_name(tensor.dtype),
                       " instead of rounded to nearest even; the first is ", one.seen, " and should be ", one.expected);
    } else if (one.zeros == one.differing && one.differing > 1) {
      fault.kind = FaultKind::kUninitialised;
      fault.text = cat("all zero: ", all, one.differing, " elements that differ are 0; they were never written");
    } else if (elements > 1 && tensor.min == tensor.max && tensor.nans + tensor.infinities == 0) {
      fault.kind = FaultKind::kUninitialised;
      fault.text = cat("constant: all ", elements, " elements are ", tensor.min, "; they were never written");
    } else if (tensor.nans + tensor.infinities > 0) {
      fault.kind = FaultKind::kUninitialised;
      fault.text = cat("not finite: ", tensor.nans, " NaN and ", tensor.infinities, " infinite of ", elements,
                       " elements; they were never written, or overflowed");
    }
    return fault;
  }

  // Looks for another tensor of the source with these values, by hash.
  Fault whole_tensor(const WrongTensor& one) {
    Fault fault;
    const uint64_t seen = report_.tensors[one.pair].logical_xxh3;
    const auto [begin, end] = holders_.equal_range(seen);
    if (seen == 0 || begin == end) return fault;
    // If there are several, prefer the one that holds the values expected here (a swap), else the first.
    size_t other = begin->second;
    for (auto at = begin; at != end; ++at) {
      other = std::min(other, at->second);
      if (report_.tensors[at->second].logical_xxh3 == expected_[one.pair]) {
        other = at->second;
        break;
      }
    }
    holds_.emplace_back(one.pair, other);
    const std::string what = name_of(to_, tensor_of(other));
    if (report_.tensors[other].logical_xxh3 == expected_[one.pair]) {
      fault.kind = FaultKind::kSwapped;
      fault.text = cat("it is swapped with ", what);
    } else if (report_.tensors[other].equal) {
      fault.kind = FaultKind::kDuplicated;
      fault.text = cat("it holds a second copy of ", what);
    } else {
      fault.kind = FaultKind::kHoldsAnother;
      fault.text = cat("it holds the values of ", what);
    }
    return fault;
  }

  int32_t tensor_of(size_t pair) const { return *to_.find(report_.tensors[pair].key, report_.tensors[pair].role); }

  // Reads both sides of one tensor again.
  void compare(const WrongTensor& one, Comparison& comparison) {
    PairedReadingOptions reading;
    reading.stopped = options_.stopped;
    PairedReading paired(target_, source_, {&one.tensors, 1}, reading);
    paired.run([&](const PairedPiece& piece) {
      comparison.seen.add(piece.place, piece.a.data());
      comparison.expected.add(piece.place, piece.b_as_a.data());
      with_type(piece.place.dtype, [&](auto value) {
        for (size_t at = 0; at < piece.a.size(); at += sizeof value) {
          std::memcpy(&value, piece.a.data() + at, sizeof value);
          const double x = to_double(value);
          std::memcpy(&value, piece.b_as_a.data() + at, sizeof value);
          const double y = to_double(value);
          if (!std::isfinite(x) || !std::isfinite(y)) continue;
          comparison.product += x * y;
          comparison.seen_squares += x * x;
          comparison.expected_squares += y * y;
        }
      });
    });
  }

  static std::string part_text(const TensorParts& parts, size_t part) {
    return parts.name(part).empty() ? std::string("rows") : cat(parts.name(part), " rows");
  }

  Fault from_rows(const WrongTensor& one) {
    const ProvedTensor& tensor = report_.tensors[one.pair];
    const CheckpointInfo& info = source_.info();
    const TensorParts parts(tensor.key, tensor.shape, info.has_model ? &info.model : nullptr);
    Comparison comparison(parts, tensor.shape);
    compare(one, comparison);
    Fault fault = transposed(parts, comparison);
    if (fault.text.empty()) fault = moved_rows(one, parts, comparison);
    if (fault.text.empty()) fault = part_of_another(one, parts, comparison);
    if (fault.text.empty()) fault = from_statistics(one, comparison.cosine(), core::num_elements(tensor.shape));
    return fault;
  }

  Fault transposed(const TensorParts& parts, const Comparison& comparison) const {
    Fault fault;
    for (size_t part = 0; part < parts.size(); ++part) {
      const PartHashes &seen = comparison.seen.of(part), &expected = comparison.expected.of(part);
      if (seen.rows == expected.rows || seen.rows.size() < 2 || seen.columns.size() < 2) continue;
      if (seen.turned != expected.columns) return fault;
      fault.kind = FaultKind::kTransposed;
      if (!fault.text.empty()) fault.text += "; ";
      fault.text += parts.size() == 1 ? cat("the matrix is transposed")
                                      : cat("its ", parts.name(part), " rows are a transposed matrix");
    }
    return fault;
  }

  struct Move {
    TensorParts::Row to, from;  // where a row is, and where it belongs
  };

  // Finds rows that are in a wrong place within the tensor.
  Fault moved_rows(const WrongTensor& one, const TensorParts& parts, const Comparison& comparison) const {
    std::unordered_map<uint64_t, std::optional<TensorParts::Row>> home;  // nullopt: several rows are equal
    for (size_t part = 0; part < parts.size(); ++part) {
      const auto& rows = comparison.expected.of(part).rows;
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto [at, is_new] = home.emplace(rows[i], TensorParts::Row{part, static_cast<int64_t>(i)});
        if (!is_new) at->second.reset();
      }
    }
    std::vector<Move> moves;
    int64_t wrong = 0;
    for (size_t part = 0; part < parts.size(); ++part) {
      const auto &seen = comparison.seen.of(part).rows, &expected = comparison.expected.of(part).rows;
      for (size_t i = 0; i < seen.size(); ++i) {
        if (seen[i] == expected[i]) continue;
        ++wrong;
        const auto found = home.find(seen[i]);
        if (found != home.end() && found->second) moves.push_back({{part, static_cast<int64_t>(i)}, *found->second});
      }
    }
    Fault fault;
    const auto found = static_cast<int64_t>(moves.size());
    if (found == 0 || 2 * found < wrong) return fault;
    std::vector<std::vector<int64_t>> between(parts.size(), std::vector<int64_t>(parts.size()));
    std::map<int64_t, int64_t> shifts;
    for (const Move& move : moves) {
      ++between[move.to.part][move.from.part];
      if (move.to.part == move.from.part) ++shifts[move.from.index - move.to.index];
    }
    for (size_t p = 0; p < parts.size(); ++p) {
      for (size_t q = p + 1; q < parts.size(); ++q) {
        if (between[p][q] == 0 || between[q][p] == 0) continue;
        fault.kind = FaultKind::kSwapped;
        fault.text = cat(parts.name(p), " and ", parts.name(q), " rows are swapped (", between[p][q], " and ",
                         between[q][p], " rows)");
        return fault;
      }
      for (size_t q = 0; q < parts.size(); ++q) {
        if (p == q || between[p][q] == 0) continue;
        fault.kind = FaultKind::kDuplicated;
        fault.text = cat(between[p][q], " of its ", parts.name(p), " rows are ", parts.name(q), " rows");
      }
    }
    if (!fault.text.empty()) return fault;
    const auto most = std::max_element(shifts.begin(), shifts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    int64_t low = std::numeric_limits<int64_t>::max(), high = -1;
    for (const Move& move : moves) {
      low = std::min(low, parts.row_of(move.to));
      high = std::max(high, parts.row_of(move.to));
    }
    if (10 * most->second >= 8 * found) {
      fault.kind = FaultKind::kShifted;
      fault.text = cat("rows ", low, " to ", high, " hold values that belong ", std::abs(most->first),
                       std::abs(most->first) == 1 ? " row " : " rows ", most->first > 0 ? "further down" : "further up",
                       " (", most->second, " rows)");
    } else {
      fault.kind = FaultKind::kPermuted;
      fault.text = cat(found, " of ", tensor_rows(one), " rows are in another order: row ", parts.row_of(moves[0].to),
                       " holds row ", parts.row_of(moves[0].from));
    }
    return fault;
  }

  int64_t tensor_rows(const WrongTensor& one) const {
    const core::Dims& shape = report_.tensors[one.pair].shape;
    return shape.empty() ? 1 : shape[0];
  }

  // The hash of one row of a source tensor, converted to the target's type.
  uint64_t row_hash(int32_t tensor, int64_t row, core::DType to) {
    const auto shape = from_.global_shape(tensor);
    const core::DType from = from_.dtype(tensor);
    core::ShardedTensor place = {"",
                                 TensorRole::kParam,
                                 to,
                                 {shape.begin(), shape.end()},
                                 core::Dims(shape.size(), 0),
                                 {shape.begin(), shape.end()}};
    place.global_shape[0] = place.local_shape[0] = 1;
    core::Dims wanted(shape.size(), 0);
    wanted[0] = row;
    const int64_t count = core::num_elements(place.local_shape);
    row_.resize(static_cast<size_t>(count * core::size_of(from)));
    for (size_t i = 0; i < shards_of_source_.count(tensor); ++i) {
      const int32_t shard = shards_of_source_.member(tensor, i);
      const auto index = static_cast<size_t>(shard);
      if (from_.replica_id(index) != 0 || from_.dtype_of(index) != from) continue;
      const core::Dims offset = from_.offsets(index);
      const auto common = layout::intersect(wanted, place.local_shape, offset, from_.extents(index));
      if (!common) continue;
      core::Dims in_shard(common->offset), in_row(common->offset);
      for (size_t axis = 0; axis < in_row.size(); ++axis) {
        in_shard[axis] -= offset[axis];
        in_row[axis] -= wanted[axis];
      }
      source_.read_into(shard, in_shard, common->extent, row_.data(), place.local_shape, in_row);
    }
    rounded_.resize(static_cast<size_t>(count * core::size_of(to)));
    round_elements(row_.data(), from, rounded_.data(), to, count);
    const TensorParts whole("", place.local_shape, nullptr);
    RowHashes hashes(whole, place.local_shape);
    hashes.add(place, rounded_.data());
    return hashes.of(0).rows[0];
  }

  // Finds rows of another layer, expert or role; reads a few rows of each candidate.
  Fault part_of_another(const WrongTensor& one, const TensorParts& parts, const Comparison& comparison) {
    const ProvedTensor& tensor = report_.tensors[one.pair];
    Fault fault;
    for (size_t part = 0; part < parts.size() && fault.text.empty(); ++part) {
      const auto &seen = comparison.seen.of(part).rows, &expected = comparison.expected.of(part).rows;
      std::vector<int64_t> rows;
      for (size_t i = 0; i < seen.size(); ++i) {
        if (seen[i] != expected[i]) rows.push_back(static_cast<int64_t>(i));
      }
      if (rows.empty()) continue;
      const std::vector<int64_t> samples = {rows.front(), rows[rows.size() / 2], rows.back()};
      for (const int32_t candidate : candidates(one)) {
        const bool holds = std::all_of(samples.begin(), samples.end(), [&](int64_t index) {
          return row_hash(candidate, parts.row_of({part, index}), tensor.dtype) == seen[static_cast<size_t>(index)];
        });
        if (!holds) continue;
        fault.kind = FaultKind::kHoldsAnother;
        fault.text = cat(rows.size() == seen.size() ? "its " : cat(rows.size(), " of its ", seen.size(), " "),
                         part_text(parts, part), " hold those of ", name_of(from_, candidate));
        break;
      }
    }
    return fault;
  }

  std::vector<int32_t> candidates(const WrongTensor& one) const {
    const ProvedTensor& tensor = report_.tensors[one.pair];
    const std::string pattern = sibling_pattern(tensor.key);
    std::vector<int32_t> found;
    for (size_t t = 0; t < from_.num_tensors() && found.size() < kMaxCandidates; ++t) {
      const auto candidate = static_cast<int32_t>(t);
      if (candidate == one.tensors.b || !same_shape(from_, candidate, to_, one.tensors.a)) continue;
      if (tensor.shape.empty() || !is_convertible(from_.dtype(candidate), tensor.dtype)) continue;
      const bool is_sibling = sibling_pattern(from_.key(candidate)) == pattern;
      if (is_sibling || tensor.role == from_.role(candidate)) found.push_back(candidate);
    }
    return found;
  }

  // The last resort if no other check explains the fault.
  Fault from_statistics(const WrongTensor& one, double cosine, int64_t elements) {
    const ProvedTensor& tensor = report_.tensors[one.pair];
    Fault fault;
    const bool is_optimizer = core::is_optimizer_role(tensor.role);
    const auto weights = pair_of_.find({tensor.key, TensorRole::kParam});
    const std::string scale = odd_scale(tensor, medians_);
    const std::string what = counts(one, core::num_elements(tensor.shape));
    if (is_optimizer && weights != pair_of_.end() && report_.tensors[weights->second].equal) {
      fault.kind = FaultKind::kStale;
      fault.text = cat("the weights of this name are right, but this state is of another step or run: ", what,
                       ", cosine ", cosine);
    } else if (!scale.empty()) {
      fault.kind = FaultKind::kUninitialised;
      fault.text = cat("scale: ", scale, "; ", what);
    } else if (std::abs(cosine) < kUncorrelated && elements >= kFewElements && 2 * one.differing > elements) {
      fault.kind = FaultKind::kUninitialised;
      fault.text = cat("its values are uncorrelated with the source's (cosine ", cosine, "): never written, or of ",
                       "another model; ", what);
    } else {
      fault.kind = FaultKind::kChanged;
      fault.text = what;
    }
    return fault;
  }

  // Adds layers and experts for which several tensors hold those of another one.
  void summarise() {
    std::map<std::pair<std::string, std::string>, int64_t> together;
    for (const auto& [pair, other] : holds_) {
      const Numbers here = numbers_of(report_.tensors[pair].key), there = numbers_of(report_.tensors[other].key);
      if (sibling_pattern(report_.tensors[pair].key) != sibling_pattern(report_.tensors[other].key)) continue;
      const auto text = [](const Numbers& numbers, bool with_expert) {
        return with_expert ? cat("expert ", numbers.expert, " of layer ", numbers.layer) : cat("layer ", numbers.layer);
      };
      const bool of_experts = here.expert >= 0 && here.layer == there.layer;
      ++together[{text(here, of_experts), text(there, of_experts)}];
    }
    for (const auto& [names, count] : together) {
      report_.summary.push_back(
          cat(names.first, " holds the values of ", names.second, ": ", count, count == 1 ? " tensor" : " tensors"));
    }
  }

  Source &source_, &target_;
  const ShardTable &from_, &to_;
  ProofReport& report_;
  const std::vector<uint64_t>& expected_;
  const ProveOptions& options_;
  std::unordered_multimap<uint64_t, size_t> holders_;  // pairs by their expected hash
  std::map<std::pair<std::string, TensorRole>, size_t> pair_of_;
  std::vector<std::pair<size_t, size_t>> holds_;  // a pair, and the pair whose values it holds
  const SiblingMedians medians_;
  const ShardsOfTensors shards_of_source_;
  std::vector<std::byte> row_, rounded_;
};

}  // namespace

void WrongTensor::add(const WrongTensor& part) {
  differing += part.differing;
  zeros += part.zeros;
  truncated += part.truncated;
  if (part.first_flat >= first_flat) return;
  first_flat = part.first_flat;
  first = part.first;
  shard = part.shard;
  seen = part.seen;
  expected = part.expected;
}

std::string sibling_pattern(std::string_view key) {
  std::string pattern;
  for (size_t i = 0; i < key.size(); ++i) {
    const bool digit = key[i] >= '0' && key[i] <= '9';
    const bool begins = i == 0 || key[i - 1] == '.' || (!pattern.empty() && pattern.back() == '#');
    if (digit && begins) {
      if (pattern.empty() || pattern.back() != '#') pattern += '#';
    } else {
      pattern += key[i];
    }
  }
  return pattern;
}

SiblingMedians sibling_medians(const std::vector<ProvedTensor>& tensors) {
  std::map<std::pair<std::string, TensorRole>, std::vector<double>> scales;
  for (const ProvedTensor& tensor : tensors) scales[{sibling_pattern(tensor.key), tensor.role}].push_back(tensor.rms);
  SiblingMedians medians;
  for (auto& [siblings, values] : scales) {
    if (values.size() < 3) continue;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    medians[siblings] = *middle;
  }
  return medians;
}

std::string odd_scale(const ProvedTensor& tensor, const SiblingMedians& medians) {
  const auto found = medians.find({sibling_pattern(tensor.key), tensor.role});
  if (found == medians.end() || found->second <= 0) return "";
  const double median = found->second;
  if (tensor.rms <= kOddScale * median && tensor.rms >= median / kOddScale) return "";
  return cat("root mean square ", tensor.rms, ", while ", median, " is usual for this tensor in other layers");
}

void diagnose(Source& source, Source& target, const std::vector<WrongTensor>& wrong, ProofReport& report,
              const std::vector<uint64_t>& expected_xxh3, const ProveOptions& options) {
  Diagnosis(source, target, report, expected_xxh3, options).run(wrong);
}

}  // namespace ms::ckpt::detail
