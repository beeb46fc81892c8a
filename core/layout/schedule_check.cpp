#include "core/layout/schedule_check.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace ms::layout {
namespace {

using core::cat;
using Kind = ScheduleAction::Kind;

bool ends_backward(Kind kind) { return kind == Kind::kBackward || kind == Kind::kBackwardWeight; }

std::string described(const ScheduleAction& action) {
  return cat(action_name(action.kind), " of micro-batch ", action.microbatch, ", chunk ", action.chunk);
}

// Checks the list of one stage alone: everything that no message decides.
class StageCheck {
 public:
  StageCheck(const PipelineSchedule& schedule, int stage) : schedule_(schedule), stage_(stage) {
    const size_t chunks = static_cast<size_t>(schedule.placement.chunks());
    seen_.resize(chunks * static_cast<size_t>(schedule.num_microbatches));
    next_gradient_.resize(chunks);
  }

  std::string fault() {
    const auto& actions = schedule_.actions[static_cast<size_t>(stage_)];
    for (size_t i = 0; i < actions.size(); ++i) {
      const std::string wrong = add(actions[i]);
      if (!wrong.empty()) return cat("stage ", stage_, ", action ", i, ": ", described(actions[i]), ' ', wrong);
    }
    for (int chunk = 0; chunk < schedule_.placement.chunks(); ++chunk) {
      for (int64_t m = 0; m < schedule_.num_microbatches; ++m) {
        const Seen& seen = at(m, chunk);
        const bool whole = seen.forward && (schedule_.forward_only || seen.backward || seen.backward_weight);
        if (!whole) {
          return cat("stage ", stage_, ": ", seen.forward ? "backward" : "forward", " of micro-batch ", m, ", chunk ",
                     chunk, " is missing");
        }
      }
    }
    return {};
  }

 private:
  struct Seen {
    bool forward = false, recompute = false, backward = false, backward_input = false, backward_weight = false;
  };

  Seen& at(int64_t microbatch, int chunk) {
    return seen_[static_cast<size_t>(chunk * schedule_.num_microbatches + microbatch)];
  }

  // What is wrong with the action at this place of the list; empty if nothing.
  std::string add(const ScheduleAction& action) {
    if (action.microbatch < 0 || action.microbatch >= schedule_.num_microbatches || action.chunk < 0 ||
        action.chunk >= schedule_.placement.chunks()) {
      return cat("is outside ", schedule_.num_microbatches, " micro-batches and ", schedule_.placement.chunks(),
                 " chunks");
    }
    if (schedule_.forward_only && action.kind != Kind::kForward) return "is in a schedule of forwards";
    Seen& seen = at(action.microbatch, action.chunk);
    const bool any_backward = seen.backward || seen.backward_input;
    const auto once = [](bool& flag) { return std::exchange(flag, true); };
    bool repeated = false;
    switch (action.kind) {
      case Kind::kForward:
        repeated = once(seen.forward);
        if (!repeated) return of_one_stage(action);
        break;
      case Kind::kRecompute:
        if (!seen.forward) return "comes before its forward";
        if (any_backward) return "comes after its backward";
        repeated = once(seen.recompute);
        break;
      case Kind::kBackward:
        if (!seen.forward) return "comes before its forward";
        repeated = any_backward || once(seen.backward);
        break;
      case Kind::kBackwardInput:
        if (!seen.forward) return "comes before its forward";
        repeated = any_backward || once(seen.backward_input);
        break;
      case Kind::kBackwardWeight:
        if (!seen.backward_input) return "comes before its backward_input";
        repeated = once(seen.backward_weight);
        break;
    }
    if (repeated) return "is listed twice";
    if (ends_backward(action.kind)) {
      int64_t& next = next_gradient_[static_cast<size_t>(action.chunk)];
      if (action.microbatch != next) return cat("adds gradients before micro-batch ", next);
      ++next;
    }
    return of_one_stage(action);
  }

  // The place whose result the action reads, if it is on the same stage, must have been run.
  std::string of_one_stage(const ScheduleAction& action) {
    const std::optional<Place> source = source_of(schedule_.placement, stage_, action);
    if (!source || source->stage != stage_) return {};
    const Seen& seen = at(action.microbatch, source->chunk);
    const bool there = action.kind == Kind::kForward ? seen.forward : seen.backward || seen.backward_input;
    return there ? std::string() : cat("comes before that of chunk ", source->chunk, ", whose result it reads");
  }

  const PipelineSchedule& schedule_;
  int stage_;
  std::vector<Seen> seen_;              // [chunk][micro-batch]
  std::vector<int64_t> next_gradient_;  // of each chunk: the micro-batch whose gradients come next
};

// Runs all stages at once: each action as soon as its message is there and its stage is free.
class Simulation {
 public:
  Simulation(const PipelineSchedule& schedule, std::span<const ActionTimes> times)
      : schedule_(schedule),
        times_(times),
        next_(schedule.actions.size()),
        free_at_(schedule.actions.size()),
        busy_(schedule.actions.size()),
        starts_(schedule.actions.size()) {}

  // Returns the fault.
  std::string run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < schedule_.placement.stages(); ++stage) {
        while (const ScheduleAction* action = next_of(stage)) {
          bool waits = false;
          std::string fault = try_to_run(stage, *action, waits);
          if (!fault.empty()) return fault;
          if (waits) break;
          moved = true;
        }
      }
    }
    for (int stage = 0; stage < schedule_.placement.stages(); ++stage) {
      if (next_of(stage) == nullptr) continue;
      for (const ScheduleAction& action : next_actions(stage)) {
        if (is_there(stage, action)) continue;
        return cat("deadlock: stage ", stage, ", action ", next_[static_cast<size_t>(stage)], ": ", described(action),
                   " waits for stage ", source_of(stage, action)->stage);
      }
    }
    return {};
  }

  std::vector<std::vector<double>> take_starts() { return std::move(starts_); }
  double busy(size_t stage) const { return busy_[stage]; }
  double makespan() const { return *std::max_element(free_at_.begin(), free_at_.end()); }

 private:
  struct Message {
    int64_t microbatch;
    int position;  // of the receiver
    double sent_at;
  };

  const ScheduleAction* next_of(int stage) const {
    const auto at = static_cast<size_t>(stage);
    return next_[at] < schedule_.actions[at].size() ? &schedule_.actions[at][next_[at]] : nullptr;
  }

  const ActionTimes& times_of(int stage, const ScheduleAction& action) const {
    return times_[static_cast<size_t>(stage * schedule_.placement.chunks() + action.chunk)];
  }

  // The place that sends the action its input, or that its result is sent to; nullopt if there is none, or it is on the
  // same stage.
  std::optional<Place> source_of(int stage, const ScheduleAction& action) const {
    return of_another_stage(stage, layout::source_of(schedule_.placement, stage, action));
  }
  std::optional<Place> target_of(int stage, const ScheduleAction& action) const {
    return of_another_stage(stage, layout::target_of(schedule_.placement, stage, action));
  }
  static std::optional<Place> of_another_stage(int stage, std::optional<Place> place) {
    return place && place->stage == stage ? std::nullopt : place;
  }

  // Returns the fault; sets `waits` if the message is not there yet.
  std::string try_to_run(int stage, const ScheduleAction& action, bool& waits) {
    const auto at = static_cast<size_t>(stage);
    if (time_of_pair(stage) > 0) return try_to_run_pair(stage, waits);
    double start = free_at_[at];
    std::string fault = take_message(stage, action, start, waits);
    if (!fault.empty() || waits) return fault;
    occupy(stage, start, times_of(stage, action).of(action.kind), 1);
    send_result(stage, action);
    return {};
  }

  // How long the next action and the one after it take as a pair; 0: they are none.
  double time_of_pair(int stage) const {
    const auto& actions = schedule_.actions[static_cast<size_t>(stage)];
    const size_t next = next_[static_cast<size_t>(stage)];
    if (!begins_pair(schedule_.placement.order(), actions, next)) return 0;
    const ActionTimes& times = times_of(stage, actions[next]);
    return actions[next + 1].kind == Kind::kBackward ? times.forward_and_backward : times.forward_and_backward_input;
  }
  // What runs next, as one.
  std::span<const ScheduleAction> next_actions(int stage) const {
    return {next_of(stage), time_of_pair(stage) > 0 ? size_t{2} : size_t{1}};
  }
  // Whether the action's message, if it reads one, has been sent.
  bool is_there(int stage, const ScheduleAction& action) const {
    const auto source = source_of(stage, action);
    if (!source) return true;
    const auto link = links_.find({source->stage, stage, action.kind == Kind::kForward});
    return link != links_.end() && !link->second.empty();
  }
  std::string try_to_run_pair(int stage, bool& waits) {
    const std::span<const ScheduleAction> pair = next_actions(stage);
    waits = !is_there(stage, pair[0]) || !is_there(stage, pair[1]);
    if (waits) return {};
    double start = free_at_[static_cast<size_t>(stage)];
    for (const ScheduleAction& action : pair) {
      std::string fault = take_message(stage, action, start, waits);
      if (!fault.empty()) return fault;
    }
    occupy(stage, start, time_of_pair(stage), 2);
    for (const ScheduleAction& action : pair) send_result(stage, action);
    return {};
  }

  // The next `actions` of the stage's list run from `start` on.
  void occupy(int stage, double start, double duration, size_t actions) {
    const auto at = static_cast<size_t>(stage);
    starts_[at].insert(starts_[at].end(), actions, start);
    free_at_[at] = start + duration;
    busy_[at] += duration;
    next_[at] += actions;
  }

  // Takes the action's message, which moves its start; sets `waits` if it is not there yet. Returns the fault.
  std::string take_message(int stage, const ScheduleAction& action, double& start, bool& waits) {
    const bool forward = action.kind == Kind::kForward;
    if (const auto source = source_of(stage, action)) {
      auto& link = links_[{source->stage, stage, forward}];
      if (link.empty()) {
        waits = true;
        return {};
      }
      const Message& message = link.front();
      const int own = schedule_.placement.position({stage, action.chunk});
      if (message.microbatch != action.microbatch || message.position != own) {
        return cat("stage ", stage, ", action ", next_[static_cast<size_t>(stage)], ": ", described(action),
                   " receives micro-batch ", message.microbatch, " for chunk ",
                   schedule_.placement.place(message.position).chunk, ", which stage ", source->stage, " sent first");
      }
      start = std::max(start, message.sent_at);
      link.pop_front();
    }
    return {};
  }
  void send_result(int stage, const ScheduleAction& action) {
    if (const auto target = target_of(stage, action)) {
      links_[{stage, target->stage, action.kind == Kind::kForward}].push_back(
          {action.microbatch, schedule_.placement.position(*target), free_at_[static_cast<size_t>(stage)]});
    }
  }

  const PipelineSchedule& schedule_;
  std::span<const ActionTimes> times_;  // of each place
  std::vector<size_t> next_;            // action of each stage
  std::vector<double> free_at_, busy_;
  std::vector<std::vector<double>> starts_;
  std::map<std::tuple<int, int, bool>, std::deque<Message>> links_;  // (from, to, forward)
};

}  // namespace

double ActionTimes::of(ScheduleAction::Kind kind) const {
  switch (kind) {
    case Kind::kForward:
      return forward;
    case Kind::kBackward:
      return backward;
    case Kind::kBackwardInput:
      return backward_input;
    case Kind::kBackwardWeight:
      return backward_weight;
    case Kind::kRecompute:
      return recompute;
  }
  return 0;
}

ScheduleReport check_schedule(const PipelineSchedule& schedule, const ActionTimes& times) {
  return check_schedule(schedule, std::vector(static_cast<size_t>(schedule.placement.positions()), times));
}

ScheduleReport check_schedule(const PipelineSchedule& schedule, std::span<const ActionTimes> times) {
  const int stages = schedule.placement.stages();
  MS_CHECK(times.size() == static_cast<size_t>(schedule.placement.positions()), times.size(), " times for ",
           schedule.placement.positions(), " places");
  MS_CHECK(schedule.actions.size() == static_cast<size_t>(stages), schedule.actions.size(), " lists for ", stages,
           " stages");
  ScheduleReport report;
  for (int stage = 0; stage < stages; ++stage) {
    report.fault = StageCheck(schedule, stage).fault();
    if (!report.fault.empty()) return report;
  }
  Simulation simulation(schedule, times);
  report.fault = simulation.run();
  if (!report.fault.empty()) return report;
  report.starts = simulation.take_starts();
  report.makespan = simulation.makespan();
  for (size_t stage = 0; stage < schedule.actions.size(); ++stage) {
    report.idle.push_back(report.makespan - simulation.busy(stage));
    report.in_flight.push_back(peak_in_flight(schedule.actions[stage]));
  }
  return report;
}

}  // namespace ms::layout
