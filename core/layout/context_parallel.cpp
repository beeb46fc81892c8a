#include "core/layout/context_parallel.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace ms::layout {

std::string_view algorithm_name(ContextAlgorithm algorithm) {
  constexpr std::string_view kNames[] = {"exchange of heads", "gather of keys", "a ring",
                                         "exchange of heads and a ring"};
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
  }
  return {};
}

SequenceShare::SequenceShare(ContextAlgorithm algorithm, int64_t seq_length, int ranks, int rank, int ulysses_degree)
    : seq_length_(seq_length) {
  if (ranks == 1) return;
  const int number = parts(algorithm, ranks);
  MS_CHECK(seq_length % number == 0, "a sequence of ", seq_length, " in ", number, " parts");
  if (algorithm == ContextAlgorithm::kUlysses) {
    const int64_t count = seq_length / number;
    segments_[num_segments_++] = {rank * count, count};
    return;
  }
  const int degree = algorithm == ContextAlgorithm::kHybrid ? ulysses_degree : 1;
  const int64_t places = ranks / degree, place = rank / degree, part = seq_length / (2 * places);
  const int64_t begin = rank % degree * (seq_length / ranks), end = begin + seq_length / ranks;
  int64_t row = 0;  // of the neighbours' positions
  for (const int64_t first : {place * part, (2 * places - 1 - place) * part}) {
    const int64_t from = std::max(begin, row), behind = std::min(end, row + part);
    if (from < behind) segments_[num_segments_++] = {first + from - row, behind - from};
    row += part;
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
