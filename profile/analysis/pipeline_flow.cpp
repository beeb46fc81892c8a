#include "profile/analysis/pipeline_flow.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

namespace ms::profile {
namespace {

constexpr size_t kNone = SIZE_MAX;

struct Ref {
  size_t stage = kNone, action = kNone;
};

// What surrounds an action.
struct Links {
  int sent_to = -1, received_from = -1;  // ranks
  Ref source;                            // the action whose result it reads; none: it begins a micro-batch
  double finish = -1;                    // in the replay; below 0: not run yet
  int64_t position = 0;                  // place of its chunk on the way of a micro-batch through the pipeline
};

bool is_backward(char letter) { return letter == 'B' || letter == 'I'; }
bool has_input(char letter) { return letter == 'F' || is_backward(letter); }

class Flow {
 public:
  Flow(const std::vector<FlowStage>& stages, int64_t num_stages) : stages_(stages), num_stages_(num_stages) {
    for (const FlowStage& stage : stages_) links_.emplace_back(stage.actions.size());
  }

  // Of actions that say what they work on.
  std::optional<PipelineFlow> run_named() {
    for (size_t s = 0; s < stages_.size(); ++s) {
      join_parts(stages_[s]);
      links_[s].resize(stages_[s].actions.size());
    }
    if (!count() || !find_sources() || !replay(/*follows=*/false) || !is_whole()) return std::nullopt;
    return result_;
  }

  std::optional<PipelineFlow> run() {
    const auto idle = [](const FlowStage& stage) { return stage.actions.empty(); };
    if (stages_.empty() || std::ranges::any_of(stages_, idle) || !find_sends()) return std::nullopt;
    if (!find_receives(/*early=*/false) && !find_receives(/*early=*/true)) return std::nullopt;
    for (size_t s = 0; s < stages_.size(); ++s) {
      if (!hand_over(s)) return std::nullopt;
    }
    if (!replay(/*follows=*/true) || !place()) return std::nullopt;
    for (FlowStage& stage : stages_) {
      if (!place_weights(stage)) return std::nullopt;
      place_recomputations(stage.actions);
    }
    return result_;
  }
  std::vector<FlowStage> take() { return std::move(stages_); }

 private:
  Links& at(Ref ref) { return links_[ref.stage][ref.action]; }
  PipelineAction& action(Ref ref) { return stages_[ref.stage].actions[ref.action]; }

  // Each action once, from the begin of its first part on, as long as all of them.
  static void join_parts(FlowStage& stage) {
    std::map<std::tuple<char, int64_t, int64_t>, size_t> known;
    std::vector<PipelineAction> actions;
    for (const PipelineAction& part : stage.actions) {
      const auto [found, is_new] = known.try_emplace({part.letter, part.microbatch, part.chunk}, actions.size());
      if (is_new) {
        actions.push_back(part);
      } else {
        actions[found->second].end += part.end - part.start;
      }
    }
    stage.actions = std::move(actions);
  }

  // Micro-batches and chunks; and of the messages, whether the chunks are in a V.
  bool count() {
    int64_t sends = 0, actions = 0, last_microbatch = 0, last_chunk = 0;
    for (const FlowStage& stage : stages_) {
      actions += static_cast<int64_t>(stage.actions.size());
      for (const PipelineAction& a : stage.actions) {
        last_microbatch = std::max(last_microbatch, a.microbatch);
        last_chunk = std::max(last_chunk, a.chunk);
      }
      sends += std::ranges::count(stage.messages, true, &StageMessage::send);
    }
    if (last_microbatch >= actions || last_chunk >= actions) return false;  // numbers of a file
    result_.microbatches = last_microbatch + 1, result_.chunks = last_chunk + 1;
    const auto expected = [&](int64_t hops) {  // of all pipelines
      return 2 * result_.microbatches * hops * static_cast<int64_t>(stages_.size()) / num_stages_;
    };
    result_.in_a_v = result_.chunks > 1 && sends == expected(result_.chunks * (num_stages_ - 1));
    return result_.in_a_v || sends == expected(result_.chunks * num_stages_ - 1);
  }

  // The pipeline of each stage in stages_: those between which there are messages.
  std::vector<size_t> pipelines() const {
    std::map<int, size_t> of_rank;
    for (size_t s = 0; s < stages_.size(); ++s) of_rank[stages_[s].rank] = s;
    std::vector<size_t> pipeline(stages_.size(), kNone);
    std::vector<size_t> next;
    for (size_t first = 0; first < stages_.size(); ++first) {
      if (pipeline[first] == kNone) next.push_back(first);
      while (!next.empty()) {
        const size_t s = next.back();
        next.pop_back();
        if (std::exchange(pipeline[s], first) != kNone) continue;
        for (const StageMessage& message : stages_[s].messages) {
          const auto peer = of_rank.find(message.peer);
          if (peer != of_rank.end() && pipeline[peer->second] == kNone) next.push_back(peer->second);
        }
      }
    }
    return pipeline;
  }

  bool find_sources() {
    const int64_t last = num_stages_ * result_.chunks - 1;
    const std::vector<size_t> pipeline = pipelines();
    std::map<std::tuple<size_t, int64_t, int64_t, bool>, Ref> results;  // pipeline, position, micro-batch, forward
    const auto for_each = [&](const auto& visit) {
      for (size_t s = 0; s < stages_.size(); ++s) {
        for (size_t a = 0; a < stages_[s].actions.size(); ++a) {
          if (!has_input(stages_[s].actions[a].letter)) continue;
          const PipelineAction& own = stages_[s].actions[a];
          const bool turned = result_.in_a_v && own.chunk % 2 == 1;
          const int64_t position =
              own.chunk * num_stages_ + (turned ? num_stages_ - 1 - stages_[s].stage : stages_[s].stage);
          visit(pipeline[s], position, own, Ref{s, a});
        }
      }
    };
    for_each([&](size_t of, int64_t position, const PipelineAction& own, Ref ref) {
      results[{of, position, own.microbatch, own.letter == 'F'}] = ref;
    });
    bool found = true;
    for_each([&](size_t of, int64_t position, const PipelineAction& own, Ref ref) {
      const bool forward = own.letter == 'F', turns = !forward && position == last;
      if (forward && position == 0) return;
      const int64_t from = turns ? position : forward ? position - 1 : position + 1;
      const auto source = results.find({of, from, own.microbatch, forward || turns});
      found = found && source != results.end();
      if (source != results.end()) at(ref).source = source->second;
    });
    return found;
  }

  // A send begins within the action whose result it sends.
  bool find_sends() {
    for (size_t s = 0; s < stages_.size(); ++s) {
      const std::vector<PipelineAction>& actions = stages_[s].actions;
      for (const StageMessage& message : stages_[s].messages) {
        if (!message.send) continue;
        const auto after = std::ranges::upper_bound(actions, message.start, {}, &PipelineAction::start);
        if (after == actions.begin()) return false;
        const PipelineAction& within = *(after - 1);
        Links& links = links_[s][static_cast<size_t>(after - 1 - actions.begin())];
        if (message.start > within.end || !has_input(within.letter) || links.sent_to >= 0) return false;
        links.sent_to = message.peer;
      }
    }
    return true;
  }

  // A receive is posted after the action before the one that reads it; early: before that one, so that it overlaps it
  // (--overlap-p2p-communication). False if the receives are not like that, or do not fit the sends.
  bool find_receives(bool early) {
    for (size_t s = 0; s < stages_.size(); ++s) {
      const std::vector<PipelineAction>& actions = stages_[s].actions;
      for (Links& links : links_[s]) links.received_from = -1, links.source = {};
      for (const StageMessage& message : stages_[s].messages) {
        if (message.send) continue;
        const auto after = std::ranges::lower_bound(actions, message.start, {}, &PipelineAction::start);
        auto reader = static_cast<size_t>(after - actions.begin());
        // The very first action has nothing to overlap; only on the first stage does it read no message.
        const bool is_first = reader == 0 && stages_[s].stage > 0 && links_[s][0].received_from < 0;
        if (early && !is_first) ++reader;
        if (reader >= actions.size() || !has_input(actions[reader].letter)) return false;
        if (message.end > actions[reader].start || links_[s][reader].received_from >= 0) return false;
        links_[s][reader].received_from = message.peer;
      }
    }
    return join_messages();
  }

  // The n-th receive of a kind between two ranks has what the n-th send of this kind has sent.
  bool join_messages() {
    using Link = std::tuple<int, int, bool>;  // from, to, forward
    std::map<Link, std::pair<std::vector<Ref>, std::vector<Ref>>> messages;
    for (size_t s = 0; s < stages_.size(); ++s) {
      for (size_t a = 0; a < links_[s].size(); ++a) {
        const Links& links = links_[s][a];
        const bool forward = stages_[s].actions[a].letter == 'F';
        const int own = stages_[s].rank;
        if (links.sent_to >= 0) messages[{own, links.sent_to, forward}].first.push_back({s, a});
        if (links.received_from >= 0) messages[{links.received_from, own, forward}].second.push_back({s, a});
      }
    }
    for (const auto& [link, ends] : messages) {
      if (ends.first.size() != ends.second.size()) return false;
      for (size_t n = 0; n < ends.first.size(); ++n) at(ends.second[n]).source = ends.first[n];
    }
    return true;
  }

  // The results that stay on a stage: where a V turns, and from the last forward to the first backward.
  bool hand_over(size_t s) {
    std::vector<size_t> begins, ends, backward_begins, backward_ends;  // without a message in, without one out
    for (size_t a = 0; a < links_[s].size(); ++a) {
      const char letter = stages_[s].actions[a].letter;
      if (!has_input(letter)) continue;
      if (links_[s][a].received_from < 0) (letter == 'F' ? begins : backward_begins).push_back(a);
      if (links_[s][a].sent_to < 0) (letter == 'F' ? ends : backward_ends).push_back(a);
    }
    const auto read = [&](const std::vector<size_t>& readers, const std::vector<size_t>& sources) {
      if (readers.size() != sources.size()) return false;
      for (size_t n = 0; n < readers.size(); ++n) links_[s][readers[n]].source = {s, sources[n]};
      return true;
    };
    if (stages_[s].stage == 0) {
      const auto count = static_cast<int64_t>(begins.size());
      if (count == 0 || (result_.microbatches != 0 && result_.microbatches != count)) return false;
      result_.microbatches = count;
      for (size_t n = 0; n < begins.size(); ++n) stages_[s].actions[begins[n]].microbatch = static_cast<int64_t>(n);
      return backward_ends.size() == begins.size() && read(backward_begins, ends);
    }
    if (begins.empty()) return backward_ends.empty() && read(backward_begins, ends);
    result_.in_a_v = true;
    return read(begins, ends) && read(backward_begins, backward_ends);
  }

  // Runs each action as soon as its stage is free and what it reads is there. follows: what it works on is that of what
  // it reads.
  bool replay(bool follows) {
    const std::array<double, 128> mean = mean_times();
    std::vector<size_t> next(stages_.size());
    std::vector<double> free_at(stages_.size());
    double busy = 0;
    size_t left = 0;
    for (const FlowStage& stage : stages_) left += stage.actions.size();
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < stages_.size(); ++s) {
        for (; next[s] < stages_[s].actions.size() && ready({s, next[s]}); ++next[s], --left) {
          Links& links = links_[s][next[s]];
          const double time = mean[static_cast<size_t>(stages_[s].actions[next[s]].letter)];
          const double begin = links.source.stage == kNone ? 0 : at(links.source).finish;
          free_at[s] = links.finish = std::max(free_at[s], begin) + time;
          busy += time;
          if (follows) follow({s, next[s]});
          moved = true;
        }
      }
    }
    const double makespan = *std::ranges::max_element(free_at);
    if (left > 0 || makespan <= 0) return false;
    result_.ideal_ratio = 1 - busy / (makespan * static_cast<double>(stages_.size()));
    return true;
  }
  bool ready(Ref ref) {
    const Ref source = at(ref).source;
    return source.stage == kNone || at(source).finish >= 0;
  }
  // Takes the micro-batch over from the action whose result is read.
  void follow(Ref ref) {
    const Ref source = at(ref).source;
    if (source.stage == kNone) return;
    const bool turns = is_backward(action(ref).letter) && action(source).letter == 'F';  // the same chunk
    action(ref).microbatch = action(source).microbatch;
    at(ref).position = at(source).position + (turns ? 0 : action(ref).letter == 'F' ? 1 : -1);
  }
  std::array<double, 128> mean_times() const {
    std::array<double, 128> sums{}, counts{};
    for (const FlowStage& stage : stages_) {
      for (const PipelineAction& a : stage.actions) {
        sums[static_cast<size_t>(a.letter)] += static_cast<double>(a.end - a.start);
        ++counts[static_cast<size_t>(a.letter)];
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = counts[i] > 0 ? sums[i] / counts[i] : 0;
    return sums;
  }

  // Sets the chunks of forwards and backwards. False if one is not where its position is, or some are missing.
  bool place() {
    int64_t last = 0;
    for (size_t s = 0; s < stages_.size(); ++s) {
      for (size_t a = 0; a < links_[s].size(); ++a) {
        const int64_t position = links_[s][a].position;
        if (!has_input(stages_[s].actions[a].letter)) continue;
        if (position < 0 || stage_of(position) != stages_[s].stage) return false;
        stages_[s].actions[a].chunk = position / num_stages_;
        last = std::max(last, position);
      }
    }
    result_.chunks = last / num_stages_ + 1;
    return last + 1 == num_stages_ * result_.chunks && is_whole();
  }
  bool is_whole() const {
    const int64_t all = result_.microbatches * result_.chunks;
    return std::ranges::all_of(stages_, [&](const FlowStage& stage) {
      const auto of = [&](char letter) { return std::ranges::count(stage.actions, letter, &PipelineAction::letter); };
      return of('F') == all && of('B') + of('I') == all && of('W') == of('I');
    });
  }
  int64_t stage_of(int64_t position) const {
    const int64_t way = position % num_stages_;
    return result_.in_a_v && position / num_stages_ % 2 == 1 ? num_stages_ - 1 - way : way;
  }

  // Weights' gradients come in the order of their backwards; in ZB-V, whose backwards are all in two parts, after a
  // backward those of the first chunk that has some left, and at the end those of the last chunk first. A run too short
  // to fill the pipeline leaves out the backwards of micro-batches that it does not have, but keeps this order.
  bool place_weights(FlowStage& own) const {
    const int64_t full = std::max(result_.microbatches, 2 * num_stages_ - 1);
    const bool by_chunk = result_.in_a_v && std::ranges::none_of(stages_, [](const FlowStage& stage) {
                            return std::ranges::count(stage.actions, 'B', &PipelineAction::letter) > 0;
                          });
    std::deque<PipelineAction> pending;
    char before = 'W';
    for (PipelineAction& action : own.actions) {
      if (action.letter == 'I') pending.push_back(action);
      if (action.letter == 'W') {
        if (pending.empty()) return false;
        auto of = pending.begin();
        if (by_chunk) {
          const auto first = std::ranges::min_element(pending, {}, &PipelineAction::chunk);
          of = before == 'I' || first->microbatch < full - own.stage
                   ? first
                   : std::ranges::max_element(pending, {}, &PipelineAction::chunk);
        }
        action.microbatch = of->microbatch, action.chunk = of->chunk;
        pending.erase(of);
      }
      before = action.letter;
    }
    return true;
  }

  // Layers are run again for the next backward.
  static void place_recomputations(std::vector<PipelineAction>& actions) {
    const PipelineAction* next = nullptr;
    for (size_t a = actions.size(); a-- > 0;) {
      if (is_backward(actions[a].letter)) next = &actions[a];
      if (actions[a].letter == 'R' && next != nullptr)
        actions[a].microbatch = next->microbatch, actions[a].chunk = next->chunk;
    }
  }

  std::vector<FlowStage> stages_;
  int64_t num_stages_;
  std::vector<std::vector<Links>> links_;  // of each action of each stage
  PipelineFlow result_;
};

}  // namespace

std::optional<PipelineFlow> follow_microbatches(std::vector<FlowStage>& stages, int64_t num_stages) {
  const auto is_named = [](const FlowStage& stage) {
    return !stage.actions.empty() && std::ranges::all_of(stage.actions, [](const PipelineAction& action) {
      return action.microbatch >= 0 && action.chunk >= 0;
    });
  };
  Flow flow(stages, num_stages);
  if (!stages.empty() && std::ranges::all_of(stages, is_named)) return flow.run_named();
  const std::optional<PipelineFlow> result = flow.run();
  if (result) stages = flow.take();
  return result;
}

}  // namespace ms::profile
