#include "train/model/routed_parts.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "train/features/context_parallel.h"
#include "train/features/hybrid_context_parallel.h"

namespace ms::train {
namespace {

core::Communicator* ranks_that_share(RankState& state, int ranks) {
  if (ranks == 1) return nullptr;
  return chooses_degrees(state.config.parallel) ? &state.groups.of_degree(ranks) : &*state.groups.cp;
}

}  // namespace

RoutedParts::RoutedParts(RankState& state, const SequenceContext& sequence, int64_t tokens)
    : state_(state),
      sequence_(sequence),
      tokens_(tokens),
      batch_(sequence.lengths.empty() ? 1 : static_cast<int64_t>(sequence.lengths.size())),
      seq_(sequence.share.seq_length()),
      sharing_(static_cast<int>(sequence.share.ranks())),
      at_(state.groups.at.cp % sharing_),
      ranks_(ranks_that_share(state, sharing_)) {
  // Without lengths, rows of one position are told apart by what the share knows of the whole.
  if (sequence.lengths.empty() && seq_ > 0) batch_ = tokens_ * count() / seq_;
  if (seq_ == 0) seq_ = tokens_ * count() / batch_;
  MS_CHECK(tokens_ * count() == seq_ * batch_, count(), " parts of ", tokens_, " tokens of ", batch_, " sequences of ",
           seq_);
}

bool RoutedParts::has_padding() const {
  return std::ranges::any_of(sequence_.lengths, [&](int64_t length) { return length < seq_; });
}

int64_t RoutedParts::whole_tokens() const {
  if (sequence_.lengths.empty()) return seq_ * batch_;
  return std::accumulate(sequence_.lengths.begin(), sequence_.lengths.end(), int64_t{0});
}

core::Tensor RoutedParts::of_all(const core::TensorView& own) const {
  const auto gather = [&](core::Communicator& ranks, const core::TensorView& part) {
    core::Dims shape = part.shape();
    shape[0] *= ranks.size();
    core::Tensor all(state_.ops.arena, own.dtype(), shape, core::MemoryTag::kAct);
    ranks.allgather(part, all);
    return all;
  };
  core::Tensor all;
  if (state_.tp_size() > 1) all = gather(state_.groups.tp, own);
  if (ranks_ != nullptr) all = gather(*ranks_, all.defined() ? all.view() : own);
  return all;
}

layout::SequenceShare RoutedParts::share_of(int rank) const {
  const ModelParallelConfig& parallel = state_.config.parallel;
  if (sharing_ == 1) return {};
  return chooses_degrees(parallel) ? share_of_degree(parallel, seq_, sharing_, rank)
                                   : share_of_rank(parallel, sequence_.share, rank);
}

core::Tensor RoutedParts::by_position(core::Tensor parts) const {
  if (sharing_ == 1) return parts;
  core::Tensor ordered(state_.ops.arena, parts.dtype(), parts.shape(), core::MemoryTag::kAct);
  const int64_t row_bytes = parts.size_bytes() / parts.dim(0), rows = seq_ / sharing_;
  for (int rank = 0; rank < sharing_; ++rank) {
    share_of(rank).for_each_run(0, rows, [&](int64_t row, int64_t position, int64_t positions) {
      std::memcpy(ordered.view().bytes() + position * batch_ * row_bytes,
                  parts.view().bytes() + (rank * rows + row) * batch_ * row_bytes,
                  static_cast<size_t>(positions * batch_ * row_bytes));
    });
  }
  return ordered;
}

void RoutedParts::sum(std::span<double> counts) const {
  if (state_.tp_size() > 1) state_.groups.tp.allreduce(counts);
  if (ranks_ != nullptr) ranks_->allreduce(counts);
}

void RoutedParts::add_padding(const layout::SequenceShare& share, int64_t first, int64_t end,
                              std::vector<uint8_t>& padding) const {
  share.for_each_run(first, end, [&](int64_t, int64_t position, int64_t positions) {
    for (int64_t p = position; p < position + positions; ++p) {
      for (const int64_t length : sequence_.lengths) padding.push_back(p < length ? 0 : 1);
    }
  });
}

std::vector<uint8_t> RoutedParts::padding() const {
  std::vector<uint8_t> padding;
  if (!has_padding()) return padding;
  const int64_t rows = tokens_ / batch_, first = state_.tp_rank() * rows;
  add_padding(sequence_.share, first, first + rows, padding);
  return padding;
}

std::vector<uint8_t> RoutedParts::padding_of_all() const {
  std::vector<uint8_t> padding;
  for (int rank = 0; rank < sharing_ && has_padding(); ++rank) add_padding(share_of(rank), 0, seq_ / sharing_, padding);
  return padding;
}

std::vector<uint8_t> RoutedParts::padding_by_position() const {
  std::vector<uint8_t> padding;
  if (has_padding()) add_padding({}, 0, seq_, padding);
  return padding;
}

}  // namespace ms::train
