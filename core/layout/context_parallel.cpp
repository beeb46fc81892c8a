#include "core/layout/context_parallel.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/layout/adaptive_plan.h"

namespace ms::layout {

std::string_view algorithm_name(ContextAlgorithm algorithm) {
  constexpr std::string_view kNames[] = {"exchange of heads",
                                         "gather of keys",
                                         "a ring",
                                         "exchange of heads and a ring",
                                         "blocks that the mask needs",
                                         "exchange of heads and blocks that the mask needs"};
  return kNames[static_cast<size_t>(algorithm)];
}

ContextParts context_parts(ContextAlgorithm algorithm, int ranks, int ulysses_degree, int window) {
  switch (algorithm) {
    case ContextAlgorithm::kUlysses:
      return {.ulysses = ranks};
    case ContextAlgorithm::kKvAllgather:
      return {};
    case ContextAlgorithm::kRing:
      return {.window = window, .ring = ranks / window};
    case ContextAlgorithm::kHybrid:
      return {.ulysses = ulysses_degree, .window = window, .ring = ranks / ulysses_degree / window};
    case ContextAlgorithm::kAdaptive:
      return {.ring = ranks};
    case ContextAlgorithm::kHybridAdaptive:
      return {.ulysses = ulysses_degree, .ring = ranks / ulysses_degree};
  }
  return {};
}

int context_degree(int64_t seq_length, int64_t max_rows) {
  int degree = 1;
  while ((seq_length + degree - 1) / degree > max_rows) degree *= 2;
  return degree;
}

SequenceShare::SequenceShare(ContextAlgorithm algorithm, int64_t seq_length, int ranks, int rank)
    : seq_length_(seq_length) {
  if (ranks == 1) return;
  MS_CHECK(!is_adaptive(algorithm), "an adaptive share without its plan");
  const int number = parts(algorithm, ranks);
  MS_CHECK(seq_length % number == 0, "a sequence of ", seq_length, " in ", number, " parts");
  const int64_t count = seq_length / number;
  if (!is_zigzag(algorithm)) {
    segments_.push_back({rank * count, count});
    return;
  }
  segments_ = {{rank * count, count}, {(number - 1 - rank) * count, count}};
}

SequenceShare::SequenceShare(std::shared_ptr<const AdaptivePlan> plan, int rank, int ulysses_degree)
    : seq_length_(plan->seq_length), plan_(std::move(plan)) {
  const int64_t rows = seq_length_ / (int64_t{plan_->ranks()} * ulysses_degree);
  const int64_t begin = rank % ulysses_degree * rows, end = begin + rows;
  int64_t row = 0;  // of the neighbours' positions
  for (const Segment& of : plan_->segments[static_cast<size_t>(rank / ulysses_degree)]) {
    const int64_t from = std::max(begin, row), behind = std::min(end, row + of.count);
    if (from < behind) segments_.push_back({of.first + from - row, behind - from});
    row += of.count;
  }
}

int64_t SequenceShare::rows_before(int64_t position) const {
  if (is_whole()) return position;
  int64_t rows = 0;
  for (const Segment& segment : segments()) rows += std::clamp<int64_t>(position - segment.first, 0, segment.count);
  return rows;
}

int64_t key_copies(int64_t key_heads, int64_t ranks) { return std::lcm(key_heads, ranks) / key_heads; }

}  // namespace ms::layout
