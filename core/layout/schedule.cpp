#include "core/layout/schedule.h"

#include <algorithm>
#include <array>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace ms::layout {
namespace {

bool is_backward(const ScheduleAction& action) {
  return action.kind == ScheduleAction::kBackward || action.kind == ScheduleAction::kBackwardInput;
}

// Forwards of all chunks in the interleaved order, or with chunks counted from the last, backwards.
std::vector<ScheduleAction> interleaved_order(ScheduleAction::Kind kind, int chunks, int64_t num_microbatches,
                                              int64_t group) {
  std::vector<ScheduleAction> actions;
  for (int64_t first = 0; first < num_microbatches; first += group) {
    const int64_t end = std::min(first + group, num_microbatches);
    for (int k = 0; k < chunks; ++k) {
      const int chunk = kind == ScheduleAction::kForward ? k : chunks - 1 - k;
      for (int64_t m = first; m < end; ++m) actions.push_back({kind, m, chunk});
    }
  }
  return actions;
}

// The same list with split backwards: weights' gradients follow, in the same order, `lag` backwards later.
std::vector<ScheduleAction> with_delayed_weights(const std::vector<ScheduleAction>& actions, int64_t lag) {
  std::vector<ScheduleAction> split;
  std::deque<ScheduleAction> weights;
  const auto next_weight = [&] {
    split.push_back(weights.front());
    weights.pop_front();
  };
  for (const ScheduleAction& action : actions) {
    if (action.kind != ScheduleAction::kBackward) {
      split.push_back(action);
      continue;
    }
    split.push_back({ScheduleAction::kBackwardInput, action.microbatch, action.chunk});
    weights.push_back({ScheduleAction::kBackwardWeight, action.microbatch, action.chunk});
    if (static_cast<int64_t>(weights.size()) > lag) next_weight();
  }
  while (!weights.empty()) next_weight();
  return split;
}

// The same list with an action that runs the layers again before each backward of `chunks`.
std::vector<ScheduleAction> with_recompute_in_advance(const std::vector<ScheduleAction>& actions, int chunks) {
  std::vector<ScheduleAction> result;
  for (const ScheduleAction& action : actions) {
    if (is_backward(action) && action.chunk < chunks)
      result.push_back({ScheduleAction::kRecompute, action.microbatch, action.chunk});
    result.push_back(action);
  }
  return result;
}

// The forwards whose layers must be dropped so that at most `most` are kept at once: of those that are kept, the ones
// whose backward comes last. What was dropped is run again right before its backward, and then counts too.
std::set<std::pair<int64_t, int>> forwards_to_drop(const std::vector<ScheduleAction>& actions, int64_t most) {
  std::map<std::pair<int64_t, int>, size_t> backwards;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (is_backward(actions[i])) backwards[{actions[i].microbatch, actions[i].chunk}] = i;
  }
  std::set<std::pair<int64_t, int>> dropped;
  std::set<size_t> waiting;  // the backwards of what is kept
  int64_t in_backward = 0;   // kept between the two parts of a backward
  const auto drop_above_limit = [&] {
    while (!waiting.empty() && static_cast<int64_t>(waiting.size()) + in_backward > most) {
      const ScheduleAction& last = actions[*waiting.rbegin()];
      dropped.emplace(last.microbatch, last.chunk);
      waiting.erase(std::prev(waiting.end()));
    }
  };
  for (size_t i = 0; i < actions.size(); ++i) {
    const ScheduleAction& action = actions[i];
    if (action.kind == ScheduleAction::kForward) waiting.insert(backwards.at({action.microbatch, action.chunk}));
    if (is_backward(action)) {
      waiting.erase(i);
      ++in_backward;
    }
    drop_above_limit();
    if (action.kind == ScheduleAction::kBackward || action.kind == ScheduleAction::kBackwardWeight) --in_backward;
  }
  return dropped;
}

// The same list with an action that runs the layers again before the backwards of what must be dropped.
std::vector<ScheduleAction> with_recompute_in_bubble(const std::vector<ScheduleAction>& actions, int64_t most) {
  const std::set<std::pair<int64_t, int>> dropped = forwards_to_drop(actions, most);
  std::vector<ScheduleAction> result;
  for (const ScheduleAction& action : actions) {
    if (is_backward(action) && dropped.contains({action.microbatch, action.chunk}))
      result.push_back({ScheduleAction::kRecompute, action.microbatch, action.chunk});
    result.push_back(action);
  }
  return result;
}

// The same list with the weights' gradients of paired backwards behind the pairs.
std::vector<ScheduleAction> with_delayed_weights_of_pairs(Placement::Order order,
                                                          const std::vector<ScheduleAction>& actions) {
  std::vector<ScheduleAction> result;
  for (size_t i = 0; i < actions.size(); ++i) {
    result.push_back(actions[i]);
    if (!begins_pair(order, actions, i) || actions[i + 1].kind != ScheduleAction::kBackward) continue;
    const ScheduleAction& backward = actions[++i];
    result.push_back({ScheduleAction::kBackwardInput, backward.microbatch, backward.chunk});
    result.push_back({ScheduleAction::kBackwardWeight, backward.microbatch, backward.chunk});
  }
  return result;
}

// A list of actions on two chunks, each kind of each chunk on the micro-batches in their order.
class InOrder {
 public:
  explicit InOrder(int64_t num_microbatches) : num_microbatches_(num_microbatches) {}

  void forward(int chunk) { add(ScheduleAction::kForward, chunk, forwards_[chunk]++); }
  void backward_input(int chunk) { add(ScheduleAction::kBackwardInput, chunk, inputs_[chunk]++); }
  void backward_weight(int chunk) { add(ScheduleAction::kBackwardWeight, chunk, weights_[chunk]++); }
  // split: the gradients of the weights follow with next_weight(), in the order of their backwards.
  void backward(int chunk, bool split) {
    if (split) pending_.push_back({ScheduleAction::kBackwardWeight, inputs_[chunk], chunk});
    add(split ? ScheduleAction::kBackwardInput : ScheduleAction::kBackward, chunk, inputs_[chunk]++);
  }
  bool next_weight() {
    if (pending_.empty()) return false;
    actions_.push_back(pending_.front());
    pending_.pop_front();
    return true;
  }
  template <class Actions>
  void repeat(int64_t times, const Actions& actions) {
    for (int64_t i = 0; i < times; ++i) actions();
  }

  int64_t forwards(int chunk) const { return forwards_[chunk]; }
  int64_t inputs(int chunk) const { return inputs_[chunk]; }
  int64_t weights(int chunk) const { return weights_[chunk]; }
  std::vector<ScheduleAction> take() { return std::move(actions_); }

 private:
  // Micro-batches beyond the last one are left out.
  void add(ScheduleAction::Kind kind, int chunk, int64_t microbatch) {
    if (microbatch < num_microbatches_) actions_.push_back({kind, microbatch, chunk});
  }

  int64_t num_microbatches_;
  std::array<int64_t, 2> forwards_{}, inputs_{}, weights_{};  // of each chunk, so far
  std::deque<ScheduleAction> pending_;
  std::vector<ScheduleAction> actions_;
};

}  // namespace

std::optional<Place> source_of(const Placement& placement, int stage, const ScheduleAction& action) {
  const Place here{stage, action.chunk};
  if (action.kind == ScheduleAction::kForward) return placement.before(here);
  return is_backward(action) ? placement.behind(here) : std::nullopt;
}

std::optional<Place> target_of(const Placement& placement, int stage, const ScheduleAction& action) {
  const Place here{stage, action.chunk};
  if (action.kind == ScheduleAction::kForward) return placement.behind(here);
  return is_backward(action) ? placement.before(here) : std::nullopt;
}

std::string_view action_name(ScheduleAction::Kind kind) {
  constexpr std::string_view kNames[] = {"forward", "backward", "backward_input", "backward_weight", "recompute"};
  return kNames[kind];
}

std::vector<ScheduleAction> schedule_1f1b(int stage, int stages, int64_t num_microbatches) {
  const int64_t warmup = std::min<int64_t>(num_microbatches, stages - 1 - stage);
  std::vector<ScheduleAction> actions;
  for (int64_t m = 0; m < warmup; ++m) actions.push_back({ScheduleAction::kForward, m});
  for (int64_t m = warmup; m < num_microbatches; ++m) {
    actions.push_back({ScheduleAction::kForward, m});
    actions.push_back({ScheduleAction::kBackward, m - warmup});
  }
  for (int64_t m = num_microbatches - warmup; m < num_microbatches; ++m)
    actions.push_back({ScheduleAction::kBackward, m});
  return actions;
}

std::vector<ScheduleAction> schedule_interleaved(int stage, int stages, int chunks, int64_t num_microbatches,
                                                 int64_t group, bool in_pairs) {
  const auto forwards = interleaved_order(ScheduleAction::kForward, chunks, num_microbatches, group);
  const auto backwards = interleaved_order(ScheduleAction::kBackward, chunks, num_microbatches, group);
  const auto total = static_cast<size_t>(num_microbatches * chunks);
  const size_t warmup =
      std::min(total, static_cast<size_t>(2 * (stages - 1 - stage) + (chunks - 1) * group + (in_pairs ? 1 : 0)));
  std::vector<ScheduleAction> actions(forwards.begin(), forwards.begin() + static_cast<ptrdiff_t>(warmup));
  for (size_t k = 0; k < total; ++k) {
    if (warmup + k < total) actions.push_back(forwards[warmup + k]);
    actions.push_back(backwards[k]);
  }
  return actions;
}

std::vector<ScheduleAction> schedule_nanopipe(int stage, int stages, int chunks, int64_t num_microbatches,
                                              int64_t group) {
  return with_delayed_weights(schedule_interleaved(stage, stages, chunks, num_microbatches, group), 2 * stage);
}

std::vector<ScheduleAction> schedule_zb_h1(int stage, int stages, int64_t num_microbatches) {
  return with_delayed_weights(schedule_1f1b(stage, stages, num_microbatches), stage);
}

std::vector<ScheduleAction> schedule_zb_v(int stage, int stages, int64_t num_microbatches) {
  // A short run has the order of one that fills the pipeline.
  const int64_t filling = std::max<int64_t>(num_microbatches, 2 * stages - 1);
  InOrder order(num_microbatches);
  order.repeat(2 * (stages - stage) - 1, [&] { order.forward(0); });
  order.repeat(stage, [&] { order.forward(1), order.forward(0); });
  order.repeat(stages - stage, [&] { order.forward(1), order.backward_input(1), order.backward_weight(1); });
  while (order.forwards(1) < order.forwards(0) || order.forwards(0) < filling) {
    if (order.forwards(0) < filling) order.forward(0);
    order.backward_input(0), order.backward_weight(0);
    order.forward(1), order.backward_input(1), order.backward_weight(1);
  }
  order.repeat(stage, [&] { order.backward_input(0), order.backward_input(1); });
  order.repeat(stages - stage, [&] { order.backward_input(0), order.backward_weight(0); });
  while (order.weights(1) < order.inputs(1)) order.backward_weight(1);
  while (order.weights(0) < order.inputs(0)) order.backward_weight(0);
  return order.take();
}

std::vector<ScheduleAction> schedule_dualpipe_v(int stage, int stages, int64_t num_microbatches, bool detach) {
  InOrder order(num_microbatches);
  order.repeat(2 * (stages - stage - 1), [&] { order.forward(0); });
  order.repeat(stage + 1, [&] { order.forward(0), order.forward(1); });
  order.repeat(stages - stage - 1, [&] { order.backward(1, detach), order.next_weight(), order.forward(1); });
  order.repeat(num_microbatches - 2 * stages + stage + 1, [&] {
    order.forward(0), order.backward(1, false);
    order.forward(1), order.backward(0, false);
  });
  order.repeat(stages - stage - 1, [&] { order.backward(1, false), order.forward(1), order.backward(0, false); });
  // From the middle on, backwards are split.
  const int half = (stage + 1) / 2;
  for (int i = 0; i < stage + 1; ++i) {
    const bool split = detach && i >= half;
    order.backward(1, split && (i > half || stage % 2 == 1));
    order.backward(0, split);
  }
  order.repeat(stages - stage - 1, [&] { order.next_weight(), order.backward(0, detach); });
  while (order.next_weight()) {
  }
  return order.take();
}

std::vector<ScheduleAction> schedule_training(const ScheduleSettings& settings, int stage, int stages, int chunks,
                                              int64_t num_microbatches) {
  const int64_t group = settings.microbatch_group_size > 0 ? settings.microbatch_group_size : stages;
  const bool delays_weights = settings.pairs && settings.delays_weights_of_pairs;
  const Placement::Order order = chunk_order(settings.method);
  std::vector<ScheduleAction> actions;
  switch (settings.method) {
    case ScheduleMethod::k1F1B:
      actions = chunks == 1 && !settings.pairs
                    ? schedule_1f1b(stage, stages, num_microbatches)
                    : schedule_interleaved(stage, stages, chunks, num_microbatches, group, settings.pairs);
      break;
    case ScheduleMethod::kNanoPipe:
      actions = schedule_nanopipe(stage, stages, chunks, num_microbatches, group);
      break;
    case ScheduleMethod::kZbH1:
      return schedule_zb_h1(stage, stages, num_microbatches);
    case ScheduleMethod::kZbV:
      return schedule_zb_v(stage, stages, num_microbatches);
    case ScheduleMethod::kDualPipeV:
    case ScheduleMethod::kDualPipeVDetach:
      actions =
          schedule_dualpipe_v(stage, stages, num_microbatches, settings.method == ScheduleMethod::kDualPipeVDetach);
      return delays_weights ? with_delayed_weights_of_pairs(order, actions) : actions;
  }
  const bool has_last_place = stage == stages - 1;
  switch (settings.recompute) {
    case RecomputeTime::kAtBackward:
      return delays_weights ? with_delayed_weights_of_pairs(order, actions) : actions;
    case RecomputeTime::kInAdvance:
      return with_recompute_in_advance(actions,
                                       std::min(settings.recomputed_chunks, has_last_place ? chunks - 1 : chunks));
    case RecomputeTime::kInBubble:
      return with_recompute_in_bubble(actions, int64_t{stages} * chunks);
  }
  return actions;
}

bool begins_pair(Placement::Order order, std::span<const ScheduleAction> actions, size_t i) {
  if (i + 1 >= actions.size() || actions[i].kind != ScheduleAction::kForward || !is_backward(actions[i + 1])) {
    return false;
  }
  if (order == Placement::Order::kV) return actions[i].chunk != actions[i + 1].chunk;
  // The last forward to warm up may be in front of the first backward, which needs it.
  const bool follows_backward = std::ranges::any_of(actions.first(i), is_backward);
  const bool precedes_forward = std::ranges::any_of(
      actions.subspan(i + 1), [](const ScheduleAction& action) { return action.kind == ScheduleAction::kForward; });
  const bool needs_it = actions[i].microbatch == actions[i + 1].microbatch && actions[i].chunk == actions[i + 1].chunk;
  return (follows_backward || precedes_forward) && !needs_it;
}

std::vector<bool> dropped_chunks(const ScheduleSettings& settings, const std::vector<ScheduleAction>& actions,
                                 int chunks, int64_t num_microbatches) {
  std::vector<bool> dropped(static_cast<size_t>(num_microbatches * chunks),
                            settings.recompute == RecomputeTime::kAtBackward);
  for (const ScheduleAction& action : actions) {
    if (action.kind == ScheduleAction::kRecompute)
      dropped[static_cast<size_t>(action.microbatch * chunks + action.chunk)] = true;
  }
  return dropped;
}

int64_t least_microbatches(ScheduleMethod method, int stages) {
  return method == ScheduleMethod::kDualPipeV || method == ScheduleMethod::kDualPipeVDetach ? 2 * stages : 1;
}

std::vector<ScheduleAction> schedule_forward_only(int stages, int chunks, int64_t num_microbatches) {
  return interleaved_order(ScheduleAction::kForward, chunks, num_microbatches, stages);
}

int64_t peak_in_flight(const std::vector<ScheduleAction>& schedule) {
  int64_t now = 0, peak = 0;
  for (const ScheduleAction& action : schedule) {
    if (action.kind == ScheduleAction::kForward) ++now;
    if (action.kind == ScheduleAction::kBackward || action.kind == ScheduleAction::kBackwardWeight) --now;
    peak = std::max(peak, now);
  }
  return peak;
}

int64_t peak_kept(const std::vector<ScheduleAction>& schedule) {
  std::set<std::pair<int64_t, int>> again;
  for (const ScheduleAction& action : schedule) {
    if (action.kind == ScheduleAction::kRecompute) again.emplace(action.microbatch, action.chunk);
  }
  int64_t now = 0, peak = 0;
  for (const ScheduleAction& action : schedule) {
    const bool is_dropped =
        action.kind == ScheduleAction::kForward && again.contains({action.microbatch, action.chunk});
    if ((action.kind == ScheduleAction::kForward && !is_dropped) || action.kind == ScheduleAction::kRecompute) ++now;
    if (action.kind == ScheduleAction::kBackward || action.kind == ScheduleAction::kBackwardWeight) --now;
    peak = std::max(peak, now);
  }
  return peak;
}

}  // namespace ms::layout
