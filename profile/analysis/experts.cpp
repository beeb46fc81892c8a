#include "profile/analysis/experts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/error.h"

namespace ms::profile {
namespace {

using core::trace::ExchangeOfLayer;
using core::trace::ExpertCount;
using core::trace::ExpertCounter;
using core::trace::ExpertLayer;

ExpertSource expert_source(ExpertCount count) {
  if (count == ExpertCount::kChosen) return ExpertSource::kChosen;
  return count == ExpertCount::kAllTokens ? ExpertSource::kAllTokens : ExpertSource::kRows;
}

// Index of the step that holds a time; -1: none. What lies at the end of a step is of the next one.
int64_t step_index_at(const std::vector<Step>& steps, int64_t ts) {
  const auto after = std::ranges::upper_bound(steps, ts, {}, &Step::start);
  if (after == steps.begin() || ts >= std::prev(after)->end) return -1;
  return std::prev(after) - steps.begin();
}

struct ExpertSample {
  int rank = 0;
  int64_t step = -1;  // number
  ExpertCounter counter;
  int64_t tokens = 0;
};

// The counters of experts of one rank, in its steps.
void collect_experts(const RankDevices& rank, std::vector<ExpertSample>& samples) {
  const RankTrace& trace = *rank.trace;
  std::vector<std::optional<ExpertCounter>> counters(trace.names.size());
  for (NameId id = 0; id < counters.size(); ++id) counters[id] = core::trace::parse_expert_counter(trace.names[id]);
  for (const CounterSample& sample : trace.counters) {
    const auto& counter = counters[sample.name];
    constexpr double kMaxTokens = 1e15;
    if (!counter || !(sample.value >= 0 && sample.value <= kMaxTokens)) continue;
    const std::vector<Step>& steps = rank.view->steps;
    const int64_t step = step_index_at(steps, sample.ts);
    if (!steps.empty() && step < 0) continue;
    samples.push_back({trace.rank, step < 0 ? -1 : steps[static_cast<size_t>(step)].number, *counter,
                       static_cast<int64_t>(sample.value)});
  }
}

// Counts of the experts of a layer that grow with the experts seen.
void add_expert_tokens(std::vector<int64_t>& tokens, int64_t expert, int64_t more) {
  if (std::ssize(tokens) <= expert) tokens.resize(static_cast<size_t>(expert) + 1, kUnknownTokens);
  int64_t& count = tokens[static_cast<size_t>(expert)];
  count = std::max<int64_t>(count, 0) + more;
}

class ExpertAnalysis {
 public:
  ExpertAnalysis(const std::vector<RankDevices>& ranks, const CrossRank& cross, const ExpertOptions& options)
      : ranks_(ranks), cross_(cross), options_(options) {}

  std::optional<ExpertUse> run() {
    std::vector<ExpertSample> samples;
    for (const RankDevices& rank : ranks_) collect_experts(rank, samples);
    if (samples.empty()) return std::nullopt;
    out_.source = ExpertSource::kAllTokens;
    for (const ExpertSample& sample : samples) out_.source = std::min(out_.source, expert_source(sample.counter.count));
    std::erase_if(samples,
                  [&](const ExpertSample& sample) { return expert_source(sample.counter.count) != out_.source; });
    for (const ExpertSample& sample : samples) add(sample);
    complete();
    rate_layers();
    rate_steps(std::move(samples));
    add_waits();
    rate_ranks();
    return std::move(out_);
  }

 private:
  void add(const ExpertSample& sample) {
    const ExpertCounter& counter = sample.counter;
    ExpertLayerUse& layer = layers_[counter.layer];
    layer.layer = counter.layer;
    if (out_.source == ExpertSource::kRows) layer.by_rank[sample.rank] += sample.tokens;
    if (counter.count == ExpertCount::kPartRows) return;
    add_expert_tokens(layer.tokens, counter.expert, sample.tokens);
    if (counter.rank >= 0) {  // metrics of experts that move: they are where the last step had them
      out_.by_expert_rank = true;
      layer.by_rank[static_cast<int>(counter.rank)] += sample.tokens;
      layer.holders.resize(layer.tokens.size(), -1);
      layer.holders[static_cast<size_t>(counter.expert)] = static_cast<int>(counter.rank);
      return;
    }
    if (out_.source != ExpertSource::kRows) return;
    layer.holders.resize(layer.tokens.size(), -1);
    int& holder = layer.holders[static_cast<size_t>(counter.expert)];
    if (holder < 0) holder = sample.rank;
  }

  // As many experts in each layer.
  void complete() {
    for (const auto& [key, layer] : layers_) experts_ = std::max(experts_, layer.tokens.size());
    if (options_.num_experts > 0 && options_.num_experts < static_cast<int64_t>(experts_)) {
      throw core::Error(
          core::ErrorCode::kInvalidArgument,
          core::cat("--num-experts ", options_.num_experts, ": the records have tokens of expert ", experts_ - 1));
    }
    experts_ = std::max(experts_, static_cast<size_t>(options_.num_experts));
    for (auto& [key, layer] : layers_) {
      fill(layer.tokens);
      layer.holders.resize(experts_, -1);
      if (out_.source != ExpertSource::kRows && options_.expert_parallel > 1 && layer.by_rank.empty()) share_out(layer);
    }
  }
  // Experts without a count have no tokens, unless counts are of ranks, of which one may have no trace.
  void fill(std::vector<int64_t>& tokens) const {
    tokens.resize(experts_, kUnknownTokens);
    if (out_.source != ExpertSource::kRows) std::ranges::replace(tokens, kUnknownTokens, int64_t{0});
  }

  void share_out(ExpertLayerUse& layer) {
    const auto experts = std::ssize(layer.tokens);
    if (experts % options_.expert_parallel != 0) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        core::cat("--expert-model-parallel-size ", options_.expert_parallel, ": does not divide the ",
                                  experts, " experts of a layer; give their number by --num-experts"));
    }
    out_.by_expert_rank = true;
    for (int64_t e = 0; e < experts; ++e) {
      const auto rank = static_cast<int>(e / (experts / options_.expert_parallel));
      layer.by_rank[rank] += layer.tokens[static_cast<size_t>(e)];
      layer.holders[static_cast<size_t>(e)] = rank;
    }
  }

  void rate_layers() {
    for (auto& [key, layer] : layers_) {
      layer.of_experts = unevenness(layer.tokens);
      std::vector<int> ranks;
      std::vector<int64_t> tokens;
      for (const auto& [rank, count] : layer.by_rank) ranks.push_back(rank), tokens.push_back(count);
      layer.of_ranks = unevenness(tokens);
      if (layer.of_ranks.largest >= 0) layer.of_ranks.largest = ranks[static_cast<size_t>(layer.of_ranks.largest)];
      if (layer.of_experts.largest < 0) continue;
      const double mean = static_cast<double>(layer.tokens[static_cast<size_t>(layer.of_experts.largest)]) /
                          layer.of_experts.max_of_mean;
      for (int64_t e = 0; e < std::ssize(layer.tokens); ++e) {
        const int64_t count = layer.tokens[static_cast<size_t>(e)];
        if (static_cast<double>(count) > kHotExpert * mean) layer.hot.push_back(e);
        if (count == 0) layer.dead.push_back(e);
      }
    }
  }

  void rate_steps(std::vector<ExpertSample> samples) {
    std::erase_if(samples, [](const ExpertSample& sample) { return sample.counter.count == ExpertCount::kPartRows; });
    const auto key = [](const ExpertSample& sample) { return std::pair(sample.step, sample.counter.layer); };
    std::ranges::stable_sort(samples, {}, key);
    std::vector<int64_t> tokens;
    int64_t layers = 0;
    for (size_t i = 0; i < samples.size();) {
      const auto [number, layer] = key(samples[i]);
      if (out_.steps.empty() || out_.steps.back().step != number) {
        out_.steps.push_back({.step = number});
        layers = 0;
      }
      ExpertStepUse& step = out_.steps.back();
      tokens.clear();
      for (; i < samples.size() && key(samples[i]) == std::pair(number, layer); ++i) {
        add_expert_tokens(tokens, samples[i].counter.expert, samples[i].tokens);
        step.tokens += samples[i].tokens;
      }
      fill(tokens);
      const Unevenness uneven = unevenness(tokens);
      ++layers;
      step.max_of_mean += (uneven.max_of_mean - step.max_of_mean) / static_cast<double>(layers);
      step.cv += (uneven.cv - step.cv) / static_cast<double>(layers);
      if (uneven.max_of_mean > step.worst.max_of_mean) step.worst = uneven, step.worst_layer = layer;
    }
  }

  // The annotated calls of one rank, by start.
  struct Calls {
    struct Call {
      int64_t start = 0, end = 0;
      ExchangeOfLayer of;
    };
    std::vector<Call> calls;
    IntervalSet computing;
  };
  static Calls calls_of(const RankDevices& rank) {
    const RankTrace& trace = *rank.trace;
    std::vector<std::optional<ExchangeOfLayer>> names(trace.names.size());
    for (NameId id = 0; id < names.size(); ++id) names[id] = core::trace::parse_expert_exchange(trace.names[id]);
    Calls out;
    for (size_t i = 0; i < trace.events.size(); ++i) {
      const auto& of = names[trace.events.name[i]];
      if (of && trace.side(i) == Side::kAnnotation) out.calls.push_back({trace.events.ts[i], trace.events.end(i), *of});
    }
    if (!out.calls.empty()) out.computing = time_of(trace, *rank.view, DeviceClass::kComputation);
    return out;
  }

  void add_waits() {
    std::map<int, Calls> calls;
    std::map<int, const RankDevices*> by_rank;
    for (const RankDevices& rank : ranks_) {
      calls.emplace(rank.trace->rank, calls_of(rank));
      by_rank.emplace(rank.trace->rank, &rank);
    }
    std::map<std::pair<ExpertLayer, std::pair<int, int>>, ExpertWait> waits;
    for (const WaitRow& row : cross_.rows) {
      std::optional<ExchangeOfLayer> of;
      for (const WaitRow::Member& member : row.members) {
        const int64_t ts = by_rank.at(member.rank)->trace->events.ts[member.event];
        const std::vector<Calls::Call>& own = calls.at(member.rank).calls;
        const auto after = std::ranges::upper_bound(own, ts, {}, &Calls::Call::start);
        if (!of && after != own.begin() && ts <= std::prev(after)->end) of = std::prev(after)->of;
      }
      if (!of || !layers_.contains(of->layer)) continue;
      ExchangeUse& use = layers_.at(of->layer).exchanges[static_cast<size_t>(of->exchange)];
      ++use.instances, ++out_.exchanges;
      for (const WaitRow::Member& member : row.members) {
        const RankDevices& rank = *by_rank.at(member.rank);
        const int64_t ts = rank.trace->events.ts[member.event];
        const int64_t wait = member.wait - calls.at(member.rank).computing.length_within({ts, ts + member.wait});
        ExpertRankUse& own = use_of(member.rank);
        ++own.instances;
        if (member.rank == row.last_arriver) ++own.times_last;
        if (wait <= 0 || member.rank == row.last_arriver) continue;
        use.wait_ns += wait;
        own.wait_ns += wait;
        use_of(row.last_arriver).blame_ns += wait;
        out_.wait_ns += wait;
        ExpertWait& pair = waits[{of->layer, {member.rank, row.last_arriver}}];
        pair = {of->layer, member.rank, row.last_arriver, pair.instances + 1, pair.wait_ns + wait};
        add_to_step(*rank.view, ts, wait);
      }
    }
    for (auto& [key, wait] : waits) out_.waits.push_back(wait);
    std::ranges::stable_sort(out_.waits, std::greater(), &ExpertWait::wait_ns);
  }

  ExpertRankUse& use_of(int rank) {
    ExpertRankUse& use = by_rank_[rank];
    use.rank = rank;
    return use;
  }

  void add_to_step(const DeviceView& view, int64_t ts, int64_t wait) {
    const int64_t index = step_index_at(view.steps, ts);
    const int64_t number = index < 0 ? -1 : view.steps[static_cast<size_t>(index)].number;
    const auto step = std::ranges::lower_bound(out_.steps, number, {}, &ExpertStepUse::step);
    if (step != out_.steps.end() && step->step == number) step->wait_ns += wait;
  }

  void rate_ranks() {
    std::map<int, double> mean;  // of each rank's layers
    for (const auto& [key, layer] : layers_) {
      double all = 0;
      for (const auto& [rank, tokens] : layer.by_rank)
        use_of(rank).tokens += tokens, all += static_cast<double>(tokens);
      for (const auto& [rank, tokens] : layer.by_rank) mean[rank] += all / static_cast<double>(layer.by_rank.size());
    }
    for (auto& [rank, use] : by_rank_) {
      if (mean[rank] > 0) use.of_mean = static_cast<double>(use.tokens) / mean[rank];
      out_.ranks.push_back(use);
    }
    for (auto& [key, layer] : layers_) out_.layers.push_back(std::move(layer));
  }

  const std::vector<RankDevices>& ranks_;
  const CrossRank& cross_;
  const ExpertOptions options_;
  std::map<ExpertLayer, ExpertLayerUse> layers_;
  size_t experts_ = 0;
  std::map<int, ExpertRankUse> by_rank_;
  ExpertUse out_;
};

}  // namespace

std::string_view expert_source_name(ExpertSource source) {
  constexpr std::string_view kNames[] = {"rows", "chosen", "tokens"};
  return kNames[static_cast<size_t>(source)];
}

Unevenness unevenness(const std::vector<int64_t>& counts) {
  double sum = 0, squares = 0, known = 0;
  Unevenness out;
  for (int64_t i = 0; i < std::ssize(counts); ++i) {
    const int64_t count = counts[static_cast<size_t>(i)];
    if (count == kUnknownTokens) continue;
    if (out.largest < 0 || count > counts[static_cast<size_t>(out.largest)]) out.largest = i;
    ++known;
    sum += static_cast<double>(count);
  }
  if (sum <= 0) return {};
  const double mean = sum / known;
  for (const int64_t count : counts) {
    if (count != kUnknownTokens) squares += (static_cast<double>(count) - mean) * (static_cast<double>(count) - mean);
  }
  out.max_of_mean = static_cast<double>(counts[static_cast<size_t>(out.largest)]) / mean;
  out.cv = std::sqrt(squares / known) / mean;
  return out;
}

int64_t ExpertLayerUse::wait_ns() const {
  int64_t sum = 0;
  for (const ExchangeUse& use : exchanges) sum += use.wait_ns;
  return sum;
}

bool is_routing_record(const RankTrace& trace) {
  return !trace.counters.empty() && std::ranges::all_of(trace.counters, [&](const CounterSample& sample) {
    const auto counter = core::trace::parse_expert_counter(trace.names[sample.name]);
    return counter && expert_source(counter->count) != ExpertSource::kRows;
  });
}

std::optional<ExpertUse> expert_use(const std::vector<RankDevices>& ranks, const CrossRank& cross,
                                    const ExpertOptions& options) {
  return ExpertAnalysis(ranks, cross, options).run();
}

}  // namespace ms::profile
