#include "core/layout/interleave.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/error.h"

namespace ms::layout {
namespace {

using core::cat;

// One of the two micro-batches, as far as it has come.
struct Side {
  std::span<const ChunkStep> steps;
  size_t next = 0;
  bool waits = false;  // its last sub-step communicates, and nothing has computed since

  bool is_done() const { return next == steps.size(); }
  bool posts_next() const { return !is_done() && communicates(steps[next].step); }
  bool can_compute() const { return !is_done() && !communicates(steps[next].step) && !waits; }
  // Whether it can run its next sub-step without waiting for what `other` could hide.
  bool may_go_on(const Side& other) const { return !is_done() && !(waits && other.can_compute()); }
  auto computations_left() const {
    return std::ranges::count_if(steps.subspan(next), [](const ChunkStep& s) { return !communicates(s.step); });
  }
  void run(Side& other) {
    waits = communicates(steps[next].step);
    if (!waits) other.waits = false;
    ++next;
  }
};

// Which of {backward, forward} comes next.
size_t choose(const std::array<Side, 2>& sides) {
  for (const size_t side : {0, 1}) {
    if (sides[side].posts_next() && sides[side].may_go_on(sides[1 - side])) return side;
  }
  const bool backward_may = sides[0].may_go_on(sides[1]), forward_may = sides[1].may_go_on(sides[0]);
  if (backward_may != forward_may) return forward_may ? 1 : 0;
  return sides[1].computations_left() > sides[0].computations_left() ? 1 : 0;
}

std::string described(const PairStep& step) {
  return cat(step.is_forward ? "forward" : "backward", ", layer ", step.of_chunk.layer, ", ",
             sub_step_name(step.of_chunk.step));
}

}  // namespace

std::vector<PairStep> interleave(std::span<const ChunkStep> forward, std::span<const ChunkStep> backward) {
  std::array<Side, 2> sides = {Side{backward}, Side{forward}};
  std::vector<PairStep> order;
  while (!sides[0].is_done() || !sides[1].is_done()) {
    const size_t side = choose(sides);
    order.push_back({side == 1, sides[side].steps[sides[side].next]});
    sides[side].run(sides[1 - side]);
  }
  return order;
}

std::string check_interleaved(std::span<const ChunkStep> forward, std::span<const ChunkStep> backward,
                              std::span<const PairStep> order) {
  std::array<Side, 2> sides = {Side{backward}, Side{forward}};
  for (size_t i = 0; i < order.size(); ++i) {
    Side &own = sides[order[i].is_forward ? 1 : 0], &other = sides[order[i].is_forward ? 0 : 1];
    const auto fault = [&](const auto&... what) {
      return cat("sub-step ", i, ": ", described(order[i]), ' ', what...);
    };
    if (own.is_done()) return fault("comes after the last one");
    const ChunkStep& expected = own.steps[own.next];
    if (!(expected == order[i].of_chunk))
      return fault("instead of layer ", expected.layer, ", ", sub_step_name(expected.step));
    if (!own.may_go_on(other)) return fault("waits for communication while the other micro-batch could compute");
    own.run(other);
  }
  for (const size_t side : {0, 1}) {
    if (!sides[side].is_done()) {
      const PairStep missing{side == 1, sides[side].steps[sides[side].next]};
      return cat(described(missing), " is missing");
    }
  }
  return {};
}

std::vector<PairStep> pair_steps(const core::TransformerConfig& model, const Placement& placement, int tp,
                                 Place forward, Place backward, int ep) {
  const std::vector<ChunkStep> forwards = chunk_steps(model, placement.layers(forward), tp, ep);
  const std::vector<ChunkStep> backwards = backward_chunk_steps(model, placement.layers(backward), tp, ep);
  std::vector<PairStep> order = interleave(forwards, backwards);
  const std::string fault = check_interleaved(forwards, backwards, order);
  MS_CHECK(fault.empty(), fault);
  return order;
}

}  // namespace ms::layout
