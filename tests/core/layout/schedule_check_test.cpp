// The checker against an execution of the same lists by threads: one for each stage, with messages in queues, and
// values that depend on the order of everything. Both must agree on mutated schedules, whatever is wrong with them.
#include "core/layout/schedule_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <tuple>

#include "core/error.h"

namespace ms::layout {
namespace {

using Kind = ScheduleAction::Kind;

PipelineSchedule training(int stages, int chunks, int64_t microbatches, const ScheduleSettings& settings = {}) {
  const auto order = runs_in_a_v(settings.method) ? Placement::Order::kV : Placement::Order::kRoundRobin;
  PipelineSchedule schedule{Placement::even(stages, chunks, int64_t{stages} * chunks, order), microbatches, false, {}};
  for (int stage = 0; stage < stages; ++stage)
    schedule.actions.push_back(schedule_training(settings, stage, stages, chunks, microbatches));
  return schedule;
}

// backward_weight directly behind backward_input.
PipelineSchedule with_split_backward(PipelineSchedule schedule) {
  for (auto& actions : schedule.actions) {
    std::vector<ScheduleAction> split;
    for (const ScheduleAction& action : actions) {
      if (action.kind != Kind::kBackward) {
        split.push_back(action);
        continue;
      }
      split.push_back({Kind::kBackwardInput, action.microbatch, action.chunk});
      split.push_back({Kind::kBackwardWeight, action.microbatch, action.chunk});
    }
    actions = std::move(split);
  }
  return schedule;
}

// Two chunks in a V: all forwards, then all backwards.
PipelineSchedule v_of_all_forwards_first(int stages, int64_t microbatches) {
  PipelineSchedule schedule{Placement::even(stages, 2, 2 * int64_t{stages}, Placement::Order::kV), microbatches, false,
                            std::vector<std::vector<ScheduleAction>>(static_cast<size_t>(stages))};
  for (auto& actions : schedule.actions) {
    for (int64_t m = 0; m < microbatches; ++m)
      for (int chunk : {0, 1}) actions.push_back({Kind::kForward, m, chunk});
    for (int64_t m = 0; m < microbatches; ++m)
      for (int chunk : {1, 0}) actions.push_back({Kind::kBackward, m, chunk});
  }
  return schedule;
}

// --- An execution ---------------------------------------------------------------------------------------------------

uint64_t mixed(uint64_t a, uint64_t b) {  // not commutative
  uint64_t x = a * 0x9E3779B97F4A7C15U + b + 0x632BE59BD9B4E019U;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9U;
  return x ^ x >> 32;
}

struct Failed {};  // ends a stage: it cannot go on, or another one has failed

// Queues of messages between stages. A receiver that would wait although every other stage waits or is done has found
// a deadlock.
class Mailboxes {
 public:
  explicit Mailboxes(int stages) : running_(stages) {}

  void send(int from, int to, bool forward, uint64_t value) {
    const std::lock_guard lock(mutex_);
    queues_[{from, to, forward}].push_back(value);
    changed_.notify_all();
  }
  uint64_t receive(int from, int to, bool forward) {
    std::unique_lock lock(mutex_);
    auto& queue = queues_[{from, to, forward}];
    waiting_.push_back(&queue);
    changed_.notify_all();
    while (queue.empty()) {
      if (failed_ || all_wait()) {
        failed_ = true;
        changed_.notify_all();
        throw Failed();
      }
      changed_.wait(lock);
    }
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &queue));
    const uint64_t value = queue.front();
    queue.pop_front();
    return value;
  }
  void end(bool well) {
    const std::lock_guard lock(mutex_);
    --running_;
    failed_ = failed_ || !well;
    changed_.notify_all();
  }

 private:
  using Queue = std::deque<uint64_t>;
  bool all_wait() const {
    return static_cast<int>(waiting_.size()) == running_ &&
           std::all_of(waiting_.begin(), waiting_.end(), [](const Queue* queue) { return queue->empty(); });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<int, int, bool>, Queue> queues_;
  std::vector<const Queue*> waiting_;
  int running_;
  bool failed_ = false;
};

// What one stage computes: its weights' gradients, by chunk, and the losses if it has the last place.
struct Computed {
  std::map<int, uint64_t> gradients;
  std::map<int64_t, uint64_t> losses;
  bool operator==(const Computed&) const = default;
};

class Stage {
 public:
  Stage(const Placement& placement, int stage, Mailboxes& mailboxes)
      : placement_(placement), stage_(stage), mailboxes_(mailboxes) {}

  void run(const ScheduleAction& action) { run(action, input_of(action)); }
  // Both inputs are there before either begins.
  void run_pair(const ScheduleAction& forward, const ScheduleAction& backward) {
    const uint64_t input = input_of(forward), gradient = input_of(backward);
    run(forward, input);
    run(backward, gradient);
  }
  bool is_done() const { return kept_.empty(); }

  Computed computed;

 private:
  using Key = std::pair<int64_t, int>;  // micro-batch, chunk

  // Hidden states of a forward, the gradient of the output of a backward; of the others 0.
  uint64_t input_of(const ScheduleAction& action) {
    const int position = placement_.position({stage_, action.chunk});
    if (action.kind == Kind::kForward)
      return position == 0 ? mixed(1, static_cast<uint64_t>(action.microbatch))
                           : take(position - 1, position, action, true);
    if (action.kind != Kind::kBackward && action.kind != Kind::kBackwardInput) return 0;
    const auto key = std::pair(action.microbatch, action.chunk);
    require(kept_.count(key) == 1);
    return position == placement_.positions() - 1 ? kept_[key] + 1 : take(position + 1, position, action, false);
  }
  void run(const ScheduleAction& action, uint64_t input) {
    const int position = placement_.position({stage_, action.chunk});
    const auto key = std::pair(action.microbatch, action.chunk);
    switch (action.kind) {
      case Kind::kForward: {
        const bool last = position == placement_.positions() - 1;
        require(kept_.emplace(key, input).second);
        // Every stage has data of the micro-batch of its own: masks, seeds.
        const uint64_t output =
            mixed(mixed(input, static_cast<uint64_t>(position)), static_cast<uint64_t>(action.microbatch));
        if (last) {
          require(computed.losses.emplace(action.microbatch, output).second);
        } else {
          give(position, position + 1, action, true, output);
        }
        break;
      }
      case Kind::kBackward:
      case Kind::kBackwardInput: {
        require(kept_.count(key) == 1 && gradient_of_output_.count(key) == 0 && done_.count(key) == 0);
        if (position > 0) give(position, position - 1, action, false, mixed(input, static_cast<uint64_t>(position)));
        gradient_of_output_[key] = input;
        if (action.kind == Kind::kBackward) add_gradient(key);
        break;
      }
      case Kind::kBackwardWeight:
        require(gradient_of_output_.count(key) == 1);
        add_gradient(key);
        break;
      case Kind::kRecompute:
        require(kept_.count(key) == 1 && recomputed_[key]++ == 0 && gradient_of_output_.count(key) == 0);
        break;
    }
  }

  static void require(bool holds) {
    if (!holds) throw Failed();
  }
  void add_gradient(const Key& key) {
    uint64_t& sum = computed.gradients[key.second];
    sum = mixed(sum, mixed(kept_.at(key), gradient_of_output_.at(key)));
    kept_.erase(key);
    gradient_of_output_.erase(key);
    done_[key] = true;
  }
  // Between places of one stage there is no message.
  void give(int from, int to, const ScheduleAction& action, bool forward, uint64_t value) {
    const Place target = placement_.place(to);
    if (target.stage == stage_) {
      require(local_.emplace(std::tuple(from, to, action.microbatch), value).second);
    } else {
      mailboxes_.send(stage_, target.stage, forward, value);
    }
  }
  uint64_t take(int from, int to, const ScheduleAction& action, bool forward) {
    const Place source = placement_.place(from);
    if (source.stage != stage_) return mailboxes_.receive(source.stage, stage_, forward);
    const auto found = local_.find({from, to, action.microbatch});
    require(found != local_.end());
    return found->second;
  }

  const Placement& placement_;
  int stage_;
  Mailboxes& mailboxes_;
  std::map<Key, uint64_t> kept_, gradient_of_output_;
  std::map<Key, bool> done_;
  std::map<Key, int> recomputed_;
  std::map<std::tuple<int, int, int64_t>, uint64_t> local_;
};

// Of every stage; empty if one failed or ended with something undone. pairs: they run as one.
std::vector<Computed> execute(const PipelineSchedule& schedule, bool pairs = false) {
  const int stages = schedule.placement.stages();
  Mailboxes mailboxes(stages);
  std::vector<Computed> result(static_cast<size_t>(stages));
  std::vector<char> well(static_cast<size_t>(stages));
  std::vector<std::thread> threads;
  for (int s = 0; s < stages; ++s) {
    threads.emplace_back([&, s] {
      const auto at = static_cast<size_t>(s);
      Stage stage(schedule.placement, s, mailboxes);
      bool ended = true;
      try {
        const std::vector<ScheduleAction>& actions = schedule.actions[at];
        for (size_t i = 0; i < actions.size(); ++i) {
          if (pairs && begins_pair(schedule.placement.order(), actions, i)) {
            stage.run_pair(actions[i], actions[i + 1]);
            ++i;
          } else {
            stage.run(actions[i]);
          }
        }
      } catch (const Failed&) {
        ended = false;
      }
      well[at] = ended && stage.is_done();
      mailboxes.end(well[at] != 0);
      result[at] = stage.computed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::all_of(well.begin(), well.end(), [](char w) { return w != 0; }) ? result : std::vector<Computed>();
}

// --- Mutations ------------------------------------------------------------------------------------------------------

size_t random_index(std::mt19937& random, size_t size) {
  return std::uniform_int_distribution<size_t>(0, size - 1)(random);
}

// One random change of the lists. The first four can leave a legal schedule.
void mutate(PipelineSchedule& schedule, std::mt19937& random) {
  auto& actions = schedule.actions[random_index(random, schedule.actions.size())];
  const size_t at = random_index(random, actions.size());
  ScheduleAction& action = actions[at];
  switch (random_index(random, 8)) {
    case 0:  // neighbours change places
    case 1:
      if (at + 1 < actions.size()) std::swap(action, actions[at + 1]);
      break;
    case 2: {  // an action moves by a few places
      const size_t to = std::min(actions.size() - 1, at + random_index(random, 4));
      std::rotate(actions.begin() + static_cast<ptrdiff_t>(at), actions.begin() + static_cast<ptrdiff_t>(at) + 1,
                  actions.begin() + static_cast<ptrdiff_t>(to) + 1);
      break;
    }
    case 3: {  // two micro-batches change places everywhere
      const auto a = static_cast<int64_t>(random_index(random, static_cast<size_t>(schedule.num_microbatches)));
      const auto b = static_cast<int64_t>(random_index(random, static_cast<size_t>(schedule.num_microbatches)));
      for (auto& list : schedule.actions) {
        for (ScheduleAction& other : list)
          other.microbatch = other.microbatch == a ? b : other.microbatch == b ? a : other.microbatch;
      }
      break;
    }
    case 4:
      actions.erase(actions.begin() + static_cast<ptrdiff_t>(at));
      break;
    case 5:
      actions.insert(actions.begin() + static_cast<ptrdiff_t>(random_index(random, actions.size())), action);
      break;
    case 6:
      std::swap(action, actions[random_index(random, actions.size())]);
      break;
    default:
      action.microbatch = static_cast<int64_t>(random_index(random, static_cast<size_t>(schedule.num_microbatches)));
      break;
  }
}

std::string listed(const PipelineSchedule& schedule) {
  std::string text;
  for (const auto& actions : schedule.actions) {
    for (const ScheduleAction& action : actions)
      text += core::cat(action_name(action.kind), ' ', action.microbatch, '.', action.chunk, "; ");
    text += "\n";
  }
  return text;
}

// How many of 1,000 mutations are legal. Each must run to its end exactly if the checker has no fault to report.
int expect_agreement_on_mutations(const std::vector<PipelineSchedule>& originals, uint32_t seed, bool pairs = false) {
  const ActionTimes times = {.forward_and_backward = pairs ? 3.0 : 0.0,
                             .forward_and_backward_input = pairs ? 2.0 : 0.0};
  std::vector<std::vector<Computed>> expected;
  for (const PipelineSchedule& original : originals) {
    expected.push_back(execute(original, pairs));
    EXPECT_FALSE(expected.back().empty());
  }
  std::mt19937 random(seed);
  int legal = 0;
  for (size_t i = 0; i < 1000; ++i) {
    PipelineSchedule schedule = originals[i % originals.size()];
    for (size_t k = 0; k < 1 + random_index(random, 2); ++k) mutate(schedule, random);
    const bool runs = execute(schedule, pairs) == expected[i % originals.size()];
    const std::string fault = check_schedule(schedule, times).fault;
    EXPECT_EQ(fault.empty(), runs) << fault << '\n' << listed(schedule);
    legal += runs ? 1 : 0;
  }
  return legal;
}

TEST(CheckSchedule, AgreesWithAnExecutionOnRandomMutations) {
  std::vector<PipelineSchedule> originals;
  for (int stages : {1, 2, 3, 4}) {
    for (int64_t m : {1, 2, 5}) originals.push_back(training(stages, 1, m));
  }
  for (int stages : {2, 3}) {
    for (int chunks : {2, 3}) originals.push_back(training(stages, chunks, 2 * stages));
    originals.push_back(with_split_backward(training(stages, 1, 4)));
    originals.push_back(with_split_backward(training(stages, 2, stages)));
    originals.push_back(v_of_all_forwards_first(stages, 3));
  }
  const int legal = expect_agreement_on_mutations(originals, 20261126);
  EXPECT_GT(legal, 100);
  EXPECT_LT(legal, 700);
}

class Schedules : public testing::TestWithParam<ScheduleSettings> {};

TEST_P(Schedules, AgreeWithAnExecutionOnRandomMutations) {
  const ScheduleSettings& settings = GetParam();
  const bool is_v = runs_in_a_v(settings.method);
  const bool has_chunks = is_v || settings.method == ScheduleMethod::kNanoPipe ||
                          settings.recompute != RecomputeTime::kAtBackward || settings.pairs;
  std::vector<PipelineSchedule> originals;
  for (int stages : {2, 3, 4}) {
    for (int64_t m : {2 * stages, 2 * stages + 1}) {
      if (has_chunks && !is_v) m = 2 * stages;  // groups of stages
      originals.push_back(training(stages, has_chunks ? 2 : 1, m, settings));
    }
  }
  const int legal = expect_agreement_on_mutations(originals, 20261127, settings.pairs);
  EXPECT_GT(legal, 50);
  EXPECT_LT(legal, 700);
}

INSTANTIATE_TEST_SUITE_P(
    CheckSchedule, Schedules,
    testing::Values(ScheduleSettings{}, ScheduleSettings{ScheduleMethod::kNanoPipe},
                    ScheduleSettings{ScheduleMethod::kZbH1}, ScheduleSettings{ScheduleMethod::kZbV},
                    ScheduleSettings{ScheduleMethod::kDualPipeV}, ScheduleSettings{ScheduleMethod::kDualPipeVDetach},
                    ScheduleSettings{.method = ScheduleMethod::kDualPipeV, .pairs = true},
                    ScheduleSettings{
                        .method = ScheduleMethod::kDualPipeVDetach, .pairs = true, .delays_weights_of_pairs = true},
                    ScheduleSettings{.pairs = true}, ScheduleSettings{.pairs = true, .delays_weights_of_pairs = true},
                    ScheduleSettings{.recompute = RecomputeTime::kInBubble},
                    ScheduleSettings{.recompute = RecomputeTime::kInAdvance}));

// --- What it says ----------------------------------------------------------------------------------------------------

std::string fault_after(PipelineSchedule schedule, const std::function<void(PipelineSchedule&)>& change) {
  change(schedule);
  return check_schedule(schedule).fault;
}

TEST(CheckSchedule, NamesTheFault) {
  const PipelineSchedule plain = training(2, 1, 2);
  EXPECT_EQ(fault_after(plain, [](auto& s) { s.actions[1].pop_back(); }),
            "stage 1: backward of micro-batch 1, chunk 0 is missing");
  EXPECT_EQ(fault_after(plain,
                        [](auto& s) {
                          s.actions[1].push_back({Kind::kBackward, 1, 0});
                        }),
            "stage 1, action 4: backward of micro-batch 1, chunk 0 is listed twice");
  EXPECT_EQ(fault_after(plain, [](auto& s) { std::swap(s.actions[1][0], s.actions[1][1]); }),
            "stage 1, action 0: backward of micro-batch 0, chunk 0 comes before its forward");
  EXPECT_EQ(fault_after(plain, [](auto& s) { s.actions[0][0].microbatch = 2; }),
            "stage 0, action 0: forward of micro-batch 2, chunk 0 is outside 2 micro-batches and 1 chunks");
  EXPECT_EQ(fault_after(plain,
                        [](auto& s) {
                          s.actions[0].insert(s.actions[0].begin(), {Kind::kRecompute, 0, 0});
                        }),
            "stage 0, action 0: recompute of micro-batch 0, chunk 0 comes before its forward");
  // Stage 0 sends micro-batch 1 first, stage 1 expects micro-batch 0.
  EXPECT_EQ(
      fault_after(plain, [](auto& s) { std::swap(s.actions[0][0].microbatch, s.actions[0][1].microbatch); }),
      "stage 1, action 0: forward of micro-batch 0, chunk 0 receives micro-batch 1 for chunk 0, which stage 0 sent "
      "first");
  // Stage 0 wants the gradient of micro-batch 0 before it sends micro-batch 1, stage 1 sends it after that.
  EXPECT_EQ(fault_after(plain,
                        [](auto& s) {
                          std::swap(s.actions[0][1], s.actions[0][2]);
                          std::swap(s.actions[1][1], s.actions[1][2]);
                        }),
            "deadlock: stage 0, action 1: backward of micro-batch 0, chunk 0 waits for stage 1");
  EXPECT_EQ(fault_after(plain,
                        [](auto& s) {
                          for (auto& actions : s.actions)
                            for (auto& action : actions) action.microbatch = 1 - action.microbatch;
                        }),
            "stage 0, action 2: backward of micro-batch 1, chunk 0 adds gradients before micro-batch 0");
}

// A pair waits for both inputs: here stage 0 for a gradient that stage 1 computes behind what the pair's forward sends.
TEST(CheckSchedule, NamesTheActionOfAPairThatWaits) {
  const auto f = [](int64_t m, int chunk) { return ScheduleAction{Kind::kForward, m, chunk}; };
  const auto b = [](int64_t m, int chunk) { return ScheduleAction{Kind::kBackward, m, chunk}; };
  PipelineSchedule schedule = training(2, 2, 2);
  schedule.actions = {{f(0, 0), f(0, 1), f(1, 0), b(0, 1), b(0, 0), f(1, 1), b(1, 1), b(1, 0)},
                      {f(0, 0), f(0, 1), f(1, 0), b(0, 1), b(0, 0), f(1, 1), b(1, 1), b(1, 0)}};
  const ActionTimes pairs = {.forward_and_backward = 3};
  EXPECT_EQ(check_schedule(schedule).fault, "");
  EXPECT_EQ(check_schedule(schedule, pairs).fault,
            "deadlock: stage 0, action 2: backward of micro-batch 0, chunk 1 waits for stage 1");
  schedule.actions[1] = {f(0, 0), f(0, 1), b(0, 1), f(1, 0), b(0, 0), f(1, 1), b(1, 1), b(1, 0)};
  EXPECT_EQ(check_schedule(schedule, pairs).fault, "");
}

TEST(CheckSchedule, SplitBackwardNeedsBothHalves) {
  const PipelineSchedule split = with_split_backward(training(2, 1, 1));
  EXPECT_EQ(check_schedule(split).fault, "");
  EXPECT_EQ(fault_after(split, [](auto& s) { s.actions[0].pop_back(); }),
            "stage 0: backward of micro-batch 0, chunk 0 is missing");
  EXPECT_EQ(fault_after(split, [](auto& s) { std::swap(s.actions[0][1], s.actions[0][2]); }),
            "stage 0, action 1: backward_weight of micro-batch 0, chunk 0 comes before its backward_input");
}

TEST(CheckSchedule, ForwardOnlyHasNoBackward) {
  PipelineSchedule schedule{Placement::even(2, 2, 4), 4, true, {}};
  for (int stage : {0, 1}) {
    static_cast<void>(stage);
    schedule.actions.push_back(schedule_forward_only(2, 2, 4));
  }
  EXPECT_EQ(check_schedule(schedule).fault, "");
  schedule.actions[0].push_back({Kind::kBackward, 0, 0});
  EXPECT_EQ(check_schedule(schedule).fault,
            "stage 0, action 8: backward of micro-batch 0, chunk 0 is in a schedule of forwards");
}

TEST(CheckSchedule, ReportsIdleTimeAndActivationsInFlight) {
  const ScheduleReport report = check_schedule(training(4, 1, 8), {.forward = 2, .backward = 3});
  EXPECT_EQ(report.makespan, 5.0 * (8 + 3));
  EXPECT_EQ(report.idle, (std::vector<double>{15, 15, 15, 15}));  // (p - 1)(F + B)
  EXPECT_EQ(report.in_flight, (std::vector<int64_t>{4, 3, 2, 1}));
}

}  // namespace
}  // namespace ms::layout
