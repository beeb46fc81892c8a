#include "core/layout/adaptive_plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/layout/mask_clusters.h"

namespace ms::layout {
namespace {

// [ranks, ranks]: which blocks of queries and keys have a visible score, where cells in this order are dealt evenly.
std::vector<uint8_t> blocks_of(const CoarseMask& mask, int64_t ranks, const std::vector<int64_t>& order) {
  const int64_t cells = mask.cells();
  std::vector<int64_t> owner(static_cast<size_t>(cells));
  for (int64_t i = 0; i < cells; ++i) owner[static_cast<size_t>(order[static_cast<size_t>(i)])] = i / (cells / ranks);
  std::vector<uint8_t> blocks(static_cast<size_t>(ranks * ranks));
  for (int64_t query = 0; query < cells; ++query) {
    const int64_t row = owner[static_cast<size_t>(query)] * ranks;
    for (int64_t key = 0; key < cells; ++key)
      if (mask.sees(query, key)) blocks[static_cast<size_t>(row + owner[static_cast<size_t>(key)])] = 1;
  }
  return blocks;
}

// Of an order of cells, the smaller the better: blocks between ranks, and the sum of the squares of those in the row
// and the column of each rank.
std::pair<int64_t, int64_t> cost_of(const std::vector<uint8_t>& blocks, int64_t ranks) {
  std::vector<int64_t> of_rank(static_cast<size_t>(ranks));
  int64_t between = 0;
  for (int64_t row = 0; row < ranks; ++row) {
    for (int64_t column = 0; column < ranks; ++column) {
      if (row == column || blocks[static_cast<size_t>(row * ranks + column)] == 0) continue;
      ++between;
      ++of_rank[static_cast<size_t>(row)];
      ++of_rank[static_cast<size_t>(column)];
    }
  }
  return {between, std::inner_product(of_rank.begin(), of_rank.end(), of_rank.begin(), int64_t{0})};
}

std::vector<std::vector<Segment>> segments_of(const CoarseMask& mask, int64_t ranks,
                                              const std::vector<int64_t>& order) {
  const int64_t of_rank = mask.cells() / ranks, positions = mask.positions();
  std::vector<std::vector<Segment>> segments(static_cast<size_t>(ranks));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto begin = order.begin() + rank * of_rank;
    std::vector<int64_t> cells(begin, begin + of_rank);
    std::ranges::sort(cells);
    std::vector<Segment>& own = segments[static_cast<size_t>(rank)];
    for (const int64_t cell : cells) {
      if (own.empty() || own.back().first + own.back().count != cell * positions) own.push_back({cell * positions, 0});
      own.back().count += positions;
    }
  }
  return segments;
}

// Gives each transfer a round, such that none has two at one vertex. Vertices: receivers, and two for each sender.
class Rounds {
 public:
  Rounds(std::vector<BlockTransfer> transfers, int ranks)
      : transfers_(std::move(transfers)), degrees_(static_cast<size_t>(3 * ranks)) {
    std::vector<int> sent(static_cast<size_t>(ranks));
    for (const BlockTransfer& transfer : transfers_) {
      const int half = sent[static_cast<size_t>(transfer.from)]++ % 2;
      ends_.push_back({transfer.to, ranks + 2 * transfer.from + half});
      for (const int vertex : ends_.back()) ++degrees_[static_cast<size_t>(vertex)];
    }
    rounds_ = transfers_.empty() ? 0 : *std::ranges::max_element(degrees_);
    at_.resize(degrees_.size() * rounds_, kFree);
    for (size_t i = 0; i < transfers_.size(); ++i) insert(static_cast<int>(i));
  }

  std::vector<std::vector<BlockTransfer>> take() {
    std::vector<std::vector<BlockTransfer>> result(rounds_);
    for (size_t i = 0; i < transfers_.size(); ++i) {
      for (size_t round = 0; round < rounds_; ++round)
        if (at(ends_[i][0], round) == static_cast<int>(i)) result[round].push_back(transfers_[i]);
    }
    return result;
  }

 private:
  static constexpr int kFree = -1;
  int& at(int vertex, size_t round) { return at_[static_cast<size_t>(vertex) * rounds_ + round]; }
  size_t free_round(int vertex) {
    size_t round = 0;
    while (at(vertex, round) != kFree) ++round;
    return round;
  }
  void insert(int edge) {
    const auto [receiver, sender] = ends_[static_cast<size_t>(edge)];
    const size_t a = free_round(receiver), b = free_round(sender);
    if (a != b) swap_rounds(sender, a, b);
    at(receiver, a) = at(sender, a) = edge;
  }
  // Of the path of transfers in rounds a and b, in turn, that begins at the vertex with one in round a: it does not
  // reach the receiver, which has none in round a.
  void swap_rounds(int vertex, size_t a, size_t b) {
    std::vector<std::pair<int, size_t>> path;  // transfers, and their rounds
    for (size_t round = a; at(vertex, round) != kFree; round = round == a ? b : a) {
      const int edge = at(vertex, round);
      const auto& ends = ends_[static_cast<size_t>(edge)];
      path.emplace_back(edge, round);
      vertex = ends[0] == vertex ? ends[1] : ends[0];
    }
    for (const auto& [edge, round] : path)
      for (const int end : ends_[static_cast<size_t>(edge)]) at(end, round) = kFree;
    for (const auto& [edge, round] : path)
      for (const int end : ends_[static_cast<size_t>(edge)]) at(end, round == a ? b : a) = edge;
  }

  std::vector<BlockTransfer> transfers_;
  std::vector<std::array<int, 2>> ends_;  // vertices of each transfer
  std::vector<size_t> degrees_;           // of each vertex
  size_t rounds_ = 0;
  std::vector<int> at_;  // [vertices, rounds]: the transfer there
};

}  // namespace

int64_t AdaptivePlan::transfers() const {
  int64_t sum = 0;
  for (const auto& round : rounds) sum += static_cast<int64_t>(round.size());
  return sum;
}

int64_t AdaptivePlan::sent_by(int rank) const {
  int64_t sum = 0;
  for (const auto& round : rounds) sum += std::ranges::count(round, rank, &BlockTransfer::from);
  return sum;
}

int64_t AdaptivePlan::received_by(int rank) const {
  int64_t sum = 0;
  for (const auto& round : rounds) sum += std::ranges::count(round, rank, &BlockTransfer::to);
  return sum;
}

int64_t least_neighbours(const CoarseMask& mask, int ranks) {
  const int64_t cells = mask.cells(), of_rank = cells / ranks;
  std::vector<int64_t> others;  // of each cell
  for (int64_t cell = 0; cell < cells; ++cell) {
    int64_t met = 1;
    for (int64_t other = 0; other < cells; ++other)
      met += other != cell && (mask.sees(cell, other) || mask.sees(other, cell)) ? 1 : 0;
    others.push_back((met - 1) / of_rank);
  }
  // A rank has as many as the most of its cells, which are the least where cells that need as many are together.
  std::ranges::sort(others);
  int64_t sum = 0;
  for (int64_t last = of_rank - 1; last < cells; last += of_rank) sum += others[static_cast<size_t>(last)];
  return sum;
}

AdaptivePlan plan_blocks(const CoarseMask& mask, int ranks, PositionOrder order) {
  MS_CHECK(ranks > 0 && mask.cells() % ranks == 0, "a mask of ", mask.cells(), " cells for ", ranks, " ranks");
  std::vector<int64_t> best(static_cast<size_t>(mask.cells()));
  std::iota(best.begin(), best.end(), 0);
  std::vector<uint8_t> blocks = blocks_of(mask, ranks, best);
  auto cost = cost_of(blocks, ranks);
  if (order == PositionOrder::kOfClusters && 2 * cost.first > least_neighbours(mask, ranks)) {
    for (std::vector<int64_t>& other : cluster_orders(mask)) {
      std::vector<uint8_t> others = blocks_of(mask, ranks, other);
      const auto cost_of_other = cost_of(others, ranks);
      if (cost_of_other < cost)
        std::tie(best, blocks, cost) = std::tuple(std::move(other), std::move(others), cost_of_other);
    }
  }
  std::vector<BlockTransfer> transfers;
  for (int to = 0; to < ranks; ++to) {
    for (int from = 0; from < ranks; ++from)
      if (to != from && blocks[static_cast<size_t>(to * ranks + from)] != 0) transfers.push_back({from, to});
  }
  return {.seq_length = mask.seq_length(),
          .segments = segments_of(mask, ranks, best),
          .rounds = Rounds(std::move(transfers), ranks).take()};
}

std::shared_ptr<const AdaptivePlan> plan_documents(int64_t seq_length, int ranks,
                                                   std::span<const int64_t> document_ends, PositionOrder order,
                                                   int64_t prefix) {
  const bool has_documents = !document_ends.empty();
  const int64_t cells = has_documents ? coarse_cells(seq_length, ranks) : ranks;
  MS_CHECK(prefix == 0 || !has_documents, "a prefix of packed samples");
  CoarseMask mask(seq_length, cells, document_ends);
  mask.show_prefix(prefix);
  return std::make_shared<const AdaptivePlan>(
      plan_blocks(mask, ranks, has_documents ? order : PositionOrder::kOfSequence));
}

std::shared_ptr<const AdaptivePlan> plan_grid(const MaskGrid& grid, int ranks, PositionOrder order) {
  const int64_t common = std::lcm(grid.cells(), int64_t{ranks}), seq = grid.seq_length();
  const int64_t cells = common <= kMaxCoarseCells && seq % common == 0 ? common : coarse_cells(seq, ranks);
  return std::make_shared<const AdaptivePlan>(plan_blocks(grid.coarse(cells), ranks, order));
}

}  // namespace ms::layout
