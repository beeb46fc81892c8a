#include "core/layout/rank_grid.h"

#include <algorithm>

#include "core/error.h"

namespace ms::layout {
namespace {

constexpr std::array<std::string_view, kNumAxes> kAxisNames = {"tp", "cp", "ep", "dp", "pp"};

// A digit of a rank: it counts `size` steps of `stride` ranks.
struct Digit {
  unsigned part = 0;
  int size = 1, stride = 1;
  int of(int rank) const { return rank / stride % size; }
};

constexpr size_t kNumDigits = 8;

// The digits of a rank, fastest first.
std::array<Digit, kNumDigits> digits_of(const RankGrid& grid) {
  std::array<Digit, kNumDigits> digits;
  size_t count = 0;
  int stride = 1;
  const auto add = [&](unsigned part, int size) {
    digits[count++] = {part, size, stride};
    stride *= size;
  };
  for (const Axis axis : grid.order) {
    switch (axis) {
      case Axis::kTp:
        add(RankGrid::kTpX, grid.tp / grid.tp_y);
        add(RankGrid::kTpY, grid.tp_y);
        break;
      case Axis::kCp:
        add(RankGrid::kUlysses, grid.cp / (grid.cp_window * grid.cp_ring));
        add(RankGrid::kCpWindow, grid.cp_window);
        add(RankGrid::kCpRing, grid.cp_ring);
        break;
      case Axis::kDp:
        add(RankGrid::kDpShard, grid.dp / grid.dp_replica);
        add(RankGrid::kDpReplica, grid.dp_replica);
        break;
      case Axis::kPp:
        add(RankGrid::kPp, grid.pp);
        break;
      case Axis::kEp:
        break;
    }
  }
  return digits;
}

// Of an axis whose parts are neighbours, which they are.
Digit axis_of(const std::array<Digit, kNumDigits>& digits, unsigned parts) {
  Digit axis;
  bool found = false;
  for (const Digit& digit : digits) {
    if ((digit.part & parts) == 0) continue;
    if (!found) axis.stride = digit.stride;
    found = true;
    axis.size *= digit.size;
  }
  return axis;
}

// Adds to `ranks` all steps along the digits of `parts`: as many as the group has ranks.
void add_steps(const std::array<Digit, kNumDigits>& digits, unsigned parts, std::vector<int>& ranks) {
  for (const Digit& digit : digits) {
    if ((digit.part & parts) == 0 || digit.size == 1) continue;
    const size_t count = ranks.size();
    for (int step = 1; step < digit.size; ++step) {
      for (size_t i = 0; i < count; ++i) ranks.push_back(ranks[i] + step * digit.stride);
    }
  }
}

}  // namespace

std::string order_name(const AxisOrder& order) {
  std::string name;
  for (const Axis axis : order) {
    if (!name.empty()) name += '-';
    name += kAxisNames[static_cast<size_t>(axis)];
  }
  return name;
}

std::optional<AxisOrder> parse_order(std::string_view name) {
  AxisOrder order = kTpCpEpDpPp;
  do {
    if (order_name(order) == name) return order;
  } while (std::next_permutation(order.begin(), order.end()));
  return std::nullopt;
}

RankGrid::Coordinates RankGrid::coordinates(int rank) const {
  const auto digits = digits_of(*this);
  return {axis_of(digits, kTp).of(rank), axis_of(digits, kCp).of(rank), axis_of(digits, kDp).of(rank),
          axis_of(digits, kPp).of(rank)};
}

int RankGrid::rank(const Coordinates& at) const {
  const auto digits = digits_of(*this);
  return at.tp * axis_of(digits, kTp).stride + at.cp * axis_of(digits, kCp).stride +
         at.dp * axis_of(digits, kDp).stride + at.pp * axis_of(digits, kPp).stride;
}

int RankGrid::replica(const Coordinates& at) const {
  const auto digits = digits_of(*this);
  const bool cp_is_faster = axis_of(digits, kCp).stride <= axis_of(digits, kDp).stride;
  return cp_is_faster ? at.dp * cp + at.cp : at.cp * dp + at.dp;
}

std::vector<int> RankGrid::group(int of, unsigned parts) const {
  if ((parts & (kEtp | kEp | kExpertDp)) != 0) return expert_group(of, parts);
  const auto digits = digits_of(*this);
  int first = of;
  for (const Digit& digit : digits) {
    if ((digit.part & parts) != 0) first -= digit.of(of) * digit.stride;
  }
  std::vector<int> ranks = {first};
  add_steps(digits, parts, ranks);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> RankGrid::expert_group(int of, unsigned axes) const {
  const ExpertCoordinates own = expert_coordinates(of);
  const int shard = std::max(1, expert_dp_shard());
  std::vector<int> ranks;
  for (const int rank : group(of, kTp | kCp | kDp)) {
    const ExpertCoordinates at = expert_coordinates(rank);
    if (((axes & kEtp) != 0 || at.etp == own.etp) && ((axes & kEp) != 0 || at.ep == own.ep) &&
        ((axes & kExpertDpShard) != 0 || at.expert_dp % shard == own.expert_dp % shard) &&
        ((axes & kExpertDpReplica) != 0 || at.expert_dp / shard == own.expert_dp / shard))
      ranks.push_back(rank);
  }
  return ranks;
}

std::string sizes_text(const RankGrid& grid) {
  return core::cat("TP ", grid.tp, grid.cp > 1 ? core::cat(" x CP ", grid.cp) : "", " x DP ", grid.dp, " x PP ",
                   grid.pp);
}

RankGrid::ExpertCoordinates RankGrid::expert_coordinates(int rank) const {
  // The rank's number among those of its stage.
  const Digit stage = axis_of(digits_of(*this), kPp);
  const int within = rank / (stage.stride * stage.size) * stage.stride + rank % stage.stride;
  return {within % etp, within / etp % ep, within / (etp * ep)};
}

}  // namespace ms::layout
