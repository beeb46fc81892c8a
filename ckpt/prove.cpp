#include "ckpt/prove.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "ckpt/detail/diagnose.h"
#include "ckpt/detail/paired_reading.h"
#include "ckpt/detail/typed_values.h"
#include "ckpt/logical_hash.h"
#include "ckpt/plan.h"
#include "core/layout/box.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::DType;
using core::TensorRole;
using detail::PairedPiece;
using detail::to_double;
using detail::with_type;

std::string with_role(std::string_view key, TensorRole role) { return cat(key, " (", core::role_name(role), ")"); }

// Sums of one piece; added up later in a fixed order, independent of the threads.
struct Sums {
  double sum = 0, squares = 0;
};

template <class T>
Sums add_statistics(const PairedPiece& piece, ProvedTensor& tensor, bool& started) {
  Sums sums;
  T value;
  for (size_t at = 0; at < piece.a.size(); at += sizeof value) {
    std::memcpy(&value, piece.a.data() + at, sizeof value);
    const double x = to_double(value);
    if (!std::isfinite(x)) {
      ++(std::isnan(x) ? tensor.nans : tensor.infinities);
      continue;
    }
    tensor.zeros += x == 0;
    tensor.min = started ? std::min(tensor.min, x) : x;
    tensor.max = started ? std::max(tensor.max, x) : x;
    started = true;
    sums.sum += x;
    sums.squares += x * x;
  }
  return sums;
}

// True if y is x truncated to Half instead of rounded.
template <class Half>
bool is_truncated(Half y, double x) {
  Half above = y;
  ++above.bits;
  const double low = to_double(y), high = to_double(above);
  return std::signbit(low) == std::signbit(x) && std::abs(low) <= std::abs(x) && std::abs(x) < std::abs(high);
}

// Counts elements of the piece that differ from the source's, and classifies them.
template <class T>
void add_differences(const PairedPiece& piece, DType from, detail::WrongTensor& wrong) {
  T seen, expected;
  for (size_t i = 0; i * sizeof seen < piece.a.size(); ++i) {
    if (std::memcmp(piece.a.data() + i * sizeof seen, piece.b_as_a.data() + i * sizeof seen, sizeof seen) == 0)
      continue;
    std::memcpy(&seen, piece.a.data() + i * sizeof seen, sizeof seen);
    std::memcpy(&expected, piece.b_as_a.data() + i * sizeof seen, sizeof seen);
    ++wrong.differing;
    wrong.zeros += to_double(seen) == 0;
    if constexpr (requires { seen.bits; }) {
      float source = 0;
      if (from == DType::kFp32) {
        std::memcpy(&source, piece.b.data() + i * sizeof source, sizeof source);
        wrong.truncated += is_truncated(seen, source);
      }
    }
    core::Dims place(piece.place.global_offset);
    auto rest = static_cast<int64_t>(i);
    for (size_t axis = place.size(); axis-- > 0; rest /= piece.place.local_shape[axis]) {
      place[axis] += rest % piece.place.local_shape[axis];
    }
    const int64_t flat = layout::flat_index(piece.place.global_shape, place);
    if (flat >= wrong.first_flat) continue;
    wrong.first_flat = flat;
    wrong.first = place;
    wrong.shard = piece.shard;
    wrong.seen = to_double(seen);
    wrong.expected = to_double(expected);
  }
}

// Pairs the tensors of both sides, reports those without a partner, and compares the rest.
class Prover {
 public:
  Prover(Source& source, Source& target, const ProveOptions& options)
      : source_(source), target_(target), options_(options), from_(source.shards()), to_(target.shards()) {
    for (size_t t = 0; t < to_.num_tensors(); ++t) target_roles_.insert(to_.role(static_cast<int32_t>(t)));
  }

  ProofReport run() {
    check_target_coverage();
    pair_tensors();
    find_missing();
    report_leftovers();
    compare();
    note_odd_statistics();
    if (!wrong_.empty()) {
      detail::diagnose(source_, target_, wrong_, report_, expected_, options_);
    }
    std::stable_sort(report_.faults.begin(), report_.faults.end(), [](const Fault& a, const Fault& b) {
      return std::tie(a.tensor, a.role) < std::tie(b.tensor, b.role);
    });
    return std::move(report_);
  }

 private:
  void add(FaultKind kind, const ShardTable& table, int32_t tensor, std::string place, std::string text) {
    report_.faults.push_back(
        {kind, std::string(table.key(tensor)), table.role(tensor), std::move(place), std::move(text)});
  }

  std::string place_of(const Source& side, int32_t tensor) const {
    const ShardTable& table = side.shards();
    for (size_t i = 0; i < table.size(); ++i) {
      if (table.tensor_of(i) == tensor) return side.describe(static_cast<int32_t>(i));
    }
    return "";
  }

  void check_target_coverage() {
    covered_.assign(to_.num_tensors(), true);
    check_coverage(to_, 4, [&](int32_t tensor, std::string text) {
      covered_[static_cast<size_t>(tensor)] = false;
      const bool twice = text.find("overlap") != std::string::npos;
      add(twice ? FaultKind::kTwice : FaultKind::kHole, to_, tensor, place_of(target_, tensor), std::move(text));
    });
  }

  // The source tensor with which a target tensor must agree.
  std::optional<int32_t> origin_of(int32_t tensor) const {
    const std::string_view key = to_.key(tensor);
    const TensorRole role = to_.role(tensor);
    const auto same = from_.find(key, role);
    if (masters_are_weights_ && role == TensorRole::kParam) {
      if (const auto master = from_.find(key, TensorRole::kMaster)) return master;
    }
    if (!same && role == TensorRole::kMaster) return from_.find(key, TensorRole::kParam);
    return same;
  }

  // Decides whether fp32 weights of a target without master weights are the source's weights or its master weights.
  // Compares the smallest tensors in which these differ; if neither matches, a target with moments is assumed to hold
  // the masters.
  bool holds_masters() {
    if (target_roles_.contains(TensorRole::kMaster)) return false;
    struct Candidate {
      int64_t bytes;
      int32_t target, param, master;
    };
    std::vector<Candidate> candidates;
    for (size_t t = 0; t < to_.num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      if (to_.role(tensor) != TensorRole::kParam || to_.dtype(tensor) != DType::kFp32) continue;
      const auto param = from_.find(to_.key(tensor), TensorRole::kParam),
                 master = from_.find(to_.key(tensor), TensorRole::kMaster);
      if (!param || !master || from_.dtype(*param) == DType::kFp32 || from_.dtype(*master) != DType::kFp32) continue;
      const auto shape = to_.global_shape(tensor), wanted = from_.global_shape(*master);
      if (!std::equal(shape.begin(), shape.end(), wanted.begin(), wanted.end())) continue;
      candidates.push_back({to_.tensor_bytes(tensor), tensor, *param, *master});
    }
    if (candidates.empty()) return false;
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bytes < b.bytes; });
    constexpr size_t kProbes = 16;
    if (candidates.size() > kProbes) candidates.resize(kProbes);
    for (const Candidate& candidate : candidates) {
      const bool masters = is_equal({candidate.target, candidate.master}),
                 params = is_equal({candidate.target, candidate.param});
      if (masters != params) return masters;
    }
    return target_roles_.contains(TensorRole::kExpAvg) || target_roles_.contains(TensorRole::kMomentumBuffer);
  }

  bool is_equal(const TensorPair& pair) {
    detail::PairedReadingOptions reading;
    reading.stopped = options_.stopped;
    bool equal = true;
    detail::PairedReading paired(target_, source_, {&pair, 1}, reading);
    paired.run([&](const PairedPiece& piece) {
      equal = equal && std::memcmp(piece.a.data(), piece.b_as_a.data(), piece.a.size()) == 0;
    });
    return equal;
  }

  void pair_tensors() {
    used_.assign(from_.num_tensors(), false);
    masters_are_weights_ = holds_masters();
    for (size_t t = 0; t < to_.num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      if (options_.weights_only && core::is_optimizer_role(to_.role(tensor))) continue;
      const auto origin = origin_of(tensor);
      if (!origin) {
        add(FaultKind::kExtra, to_, tensor, place_of(target_, tensor), "the source has no such tensor");
        continue;
      }
      used_[static_cast<size_t>(*origin)] = true;
      if (from_.role(*origin) == TensorRole::kMaster && to_.role(tensor) == TensorRole::kParam) {
        if (const auto param = from_.find(from_.key(*origin), TensorRole::kParam))
          used_[static_cast<size_t>(*param)] = true;
      }
      const auto shape = to_.global_shape(tensor), wanted = from_.global_shape(*origin);
      if (!std::equal(shape.begin(), shape.end(), wanted.begin(), wanted.end())) {
        add(FaultKind::kShape, to_, tensor, place_of(target_, tensor),
            cat("shape ", shape, ", but the source has ", wanted));
      } else if (!detail::is_convertible(from_.dtype(*origin), to_.dtype(tensor))) {
        add(FaultKind::kType, to_, tensor, place_of(target_, tensor),
            cat("stored as ", core::dtype_name(to_.dtype(tensor)), ", to which the source's ",
                core::dtype_name(from_.dtype(*origin)), " cannot be converted"));
      } else {
        pairs_.push_back({tensor, *origin});
      }
    }
  }

  void find_missing() {
    std::map<TensorRole, int64_t> whole_roles;
    for (size_t t = 0; t < from_.num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      const TensorRole role = from_.role(tensor);
      if (used_[t]) continue;
      const bool whole = options_.weights_only || !target_roles_.contains(role);
      if (core::is_optimizer_role(role) && whole) {
        ++whole_roles[role];
      } else if (std::find(options_.left_out.begin(), options_.left_out.end(), from_.key(tensor)) !=
                 options_.left_out.end()) {
        report_.dropped.push_back(with_role(from_.key(tensor), role));
      } else {
        add(FaultKind::kMissing, from_, tensor, place_of(source_, tensor),
            "the source has it, but the target does not");
      }
    }
    for (const auto& [role, count] : whole_roles) {
      report_.dropped.push_back(cat("all of ", core::role_name(role), ": ", count, " tensors"));
    }
    if (masters_are_weights_) {
      report_.notes.push_back("the target's fp32 weights are the source's master weights");
    }
  }

  // Reports content of the files that was not read.
  void report_leftovers() {
    for (const Leftover& leftover : source_.leftovers()) {
      report_.dropped.push_back(cat(leftover.name, ", ", leftover.why, " [", leftover.place, "]"));
    }
    for (const Leftover& leftover : target_.leftovers()) {
      report_.faults.push_back({leftover.again ? FaultKind::kTwice : FaultKind::kExtra, leftover.name,
                                TensorRole::kParam, leftover.place, leftover.why});
    }
  }

  void compare() {
    detail::PairedReadingOptions reading;
    reading.replicas = true;
    reading.threads = options_.threads;
    reading.stopped = options_.stopped;
    reading.progress = options_.progress;
    detail::PairedReading paired(target_, source_, pairs_, reading);
    struct State {
      int64_t missing = 0;  // pieces
      bool started = false;
      LogicalPartial seen, expected;
      detail::WrongTensor wrong;
    };
    std::vector<State> states(pairs_.size());
    std::vector<Sums> sums(paired.num_pieces());
    std::vector<std::pair<size_t, size_t>> pieces(pairs_.size(), {std::numeric_limits<size_t>::max(), 0});
    for (size_t n = 0; n < paired.num_pieces(); ++n) {
      const size_t pair = paired.pair_of(n);
      ++states[pair].missing;
      pieces[pair] = {std::min(pieces[pair].first, n), n + 1};
    }
    report_.tensors.resize(pairs_.size());
    expected_.resize(pairs_.size());
    for (size_t p = 0; p < pairs_.size(); ++p) {
      ProvedTensor& tensor = report_.tensors[p];
      const auto shape = to_.global_shape(pairs_[p].a);
      tensor.key = to_.key(pairs_[p].a);
      tensor.role = to_.role(pairs_[p].a);
      tensor.dtype = to_.dtype(pairs_[p].a);
      tensor.shape = {shape.begin(), shape.end()};
      tensor.equal = true;
      report_.elements += core::num_elements(tensor.shape);
    }
    std::mutex mutex;
    paired.run([&](const PairedPiece& piece) {
      ProvedTensor statistics;
      bool started = false;
      const Sums own = with_type(piece.place.dtype,
                                 [&](auto type) { return add_statistics<decltype(type)>(piece, statistics, started); });
      const bool equal = std::memcmp(piece.a.data(), piece.b_as_a.data(), piece.a.size()) == 0;
      const int64_t count = core::num_elements(piece.place.local_shape);
      const bool hashed = covered_[static_cast<size_t>(pairs_[piece.pair].a)] && piece.place.replica_id == 0;
      LogicalPartial seen, expected;
      if (hashed) add_logical(piece.place, 0, count, piece.a.data(), seen);
      if (hashed && !equal) add_logical(piece.place, 0, count, piece.b_as_a.data(), expected);
      detail::WrongTensor wrong;
      if (!equal) {
        const DType from = from_.dtype(pairs_[piece.pair].b);
        with_type(piece.place.dtype, [&](auto type) { add_differences<decltype(type)>(piece, from, wrong); });
      }
      std::lock_guard lock(mutex);
      State& state = states[piece.pair];
      ProvedTensor& tensor = report_.tensors[piece.pair];
      sums[piece.number] = own;
      if (piece.place.replica_id == 0) {
        tensor.nans += statistics.nans;
        tensor.infinities += statistics.infinities;
        tensor.zeros += statistics.zeros;
        if (started) {
          tensor.min = state.started ? std::min(tensor.min, statistics.min) : statistics.min;
          tensor.max = state.started ? std::max(tensor.max, statistics.max) : statistics.max;
          state.started = true;
        }
      } else {
        sums[piece.number] = {};
      }
      if (!equal) {
        tensor.equal = false;
        state.wrong.add(wrong);
      }
      if (hashed) {
        state.seen.merge(seen);
        state.expected.merge(equal ? seen : expected);
      }
      if (--state.missing > 0) return;
      if (covered_[static_cast<size_t>(pairs_[piece.pair].a)]) {
        tensor.logical_xxh3 = finish_logical(tensor.dtype, tensor.shape, state.seen);
        expected_[piece.pair] =
            tensor.equal ? tensor.logical_xxh3 : finish_logical(tensor.dtype, tensor.shape, state.expected);
      }
      state.seen = {};
      state.expected = {};
    });
    for (size_t p = 0; p < pairs_.size(); ++p) {
      ProvedTensor& tensor = report_.tensors[p];
      Sums all;
      for (size_t n = pieces[p].first; n < pieces[p].second; ++n) {
        all.sum += sums[n].sum;
        all.squares += sums[n].squares;
      }
      const auto finite = static_cast<double>(core::num_elements(tensor.shape) - tensor.nans - tensor.infinities);
      if (finite > 0) {
        tensor.mean = all.sum / finite;
        tensor.rms = std::sqrt(all.squares / finite);
      }
      if (tensor.equal) continue;
      states[p].wrong.pair = p;
      states[p].wrong.tensors = pairs_[p];
      wrong_.push_back(std::move(states[p].wrong));
    }
  }

  // These equal the source's values, so the conversion is right, but an earlier step may have been wrong.
  void note_odd_statistics() {
    const auto medians = detail::sibling_medians(report_.tensors);
    for (const ProvedTensor& tensor : report_.tensors) {
      if (!tensor.equal) continue;
      const int64_t elements = core::num_elements(tensor.shape);
      std::string what;
      if (tensor.nans + tensor.infinities > 0) {
        what = cat(tensor.nans + tensor.infinities, " of ", elements, " elements are not finite");
      } else if (tensor.role == TensorRole::kParam && tensor.shape.size() > 1 && elements > 1 &&
                 tensor.min == tensor.max) {
        what = tensor.min == 0 ? std::string("all elements are 0") : cat("all elements are ", tensor.min);
      } else if (tensor.role == TensorRole::kParam && tensor.shape.size() > 1) {
        what = detail::odd_scale(tensor, medians);
      }
      if (!what.empty()) {
        report_.notes.push_back(cat(with_role(tensor.key, tensor.role), ": ", what, "; so are the source's"));
      }
    }
  }

  Source &source_, &target_;
  const ProveOptions& options_;
  const ShardTable &from_, &to_;
  std::set<TensorRole> target_roles_;
  std::vector<bool> covered_;  // per target tensor
  std::vector<bool> used_;     // per source tensor
  bool masters_are_weights_ = false;
  std::vector<TensorPair> pairs_;   // target, source
  std::vector<uint64_t> expected_;  // logical hash of the source's values in the target's type, by pair
  std::vector<detail::WrongTensor> wrong_;
  ProofReport report_;
};

}  // namespace

std::string_view fault_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kRefused:
      return "refused";
    case FaultKind::kMissing:
      return "missing";
    case FaultKind::kExtra:
      return "extra";
    case FaultKind::kTwice:
      return "written twice";
    case FaultKind::kHole:
      return "not written";
    case FaultKind::kShape:
      return "shape";
    case FaultKind::kType:
      return "type";
    case FaultKind::kTruncated:
      return "truncated";
    case FaultKind::kUninitialised:
      return "uninitialised";
    case FaultKind::kHoldsAnother:
      return "another tensor";
    case FaultKind::kSwapped:
      return "swapped";
    case FaultKind::kDuplicated:
      return "duplicated";
    case FaultKind::kTransposed:
      return "transposed";
    case FaultKind::kShifted:
      return "shifted";
    case FaultKind::kPermuted:
      return "permuted";
    case FaultKind::kStale:
      return "stale";
    case FaultKind::kChanged:
      return "changed";
  }
  return "";
}

std::string fault_text(const Fault& fault) {
  std::string text;
  if (!fault.tensor.empty()) text = cat(with_role(fault.tensor, fault.role), ": ");
  text += cat(fault_name(fault.kind), ": ", fault.text);
  if (!fault.place.empty()) text += cat(" [", fault.place, "]");
  return text;
}

ProofReport prove(Source& source, Source& target, const ProveOptions& options) {
  return Prover(source, target, options).run();
}

ProofReport refused_target(const core::Error& error) {
  ProofReport report;
  report.faults.push_back({FaultKind::kRefused, "", TensorRole::kParam, "", error.what()});
  return report;
}

}  // namespace ms::ckpt
