#include "core/layout/context_parallel.h"

#include <numeric>

#include "core/error.h"

namespace ms::layout {

std::string_view algorithm_name(ContextAlgorithm algorithm) {
  constexpr std::string_view kNames[] = {"exchange of heads", "gather of keys", "a ring"};
  return kNames[static_cast<size_t>(algorithm)];
}

SequenceShare::SequenceShare(ContextAlgorithm algorithm, int64_t seq_length, int ranks, int rank)
    : seq_length_(seq_length) {
  if (ranks == 1) return;
  const int number = parts(algorithm, ranks);
  MS_CHECK(seq_length % number == 0, "a sequence of ", seq_length, " in ", number, " parts");
  const int64_t count = seq_length / number;
  segments_[num_segments_++] = {rank * count, count};
  if (number > ranks) segments_[num_segments_++] = {(number - 1 - rank) * count, count};
}

int64_t key_copies(int64_t key_heads, int64_t ranks) { return std::lcm(key_heads, ranks) / key_heads; }

}  // namespace ms::layout
