#include "profile/report/expert_tables.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"

namespace ms::profile {
namespace {

using core::trace::ExpertExchange;
using core::trace::ExpertLayer;
using Unit = DataTable::Unit;

// "3", "mtp 0 layer 0"
std::string expert_layer_text(const ExpertLayer& layer) {
  return layer.mtp < 0 ? std::to_string(layer.layer) : expert_layer_name(layer);
}

const ExchangeUse& exchange_of(const ExpertLayerUse& layer, ExpertExchange exchange) {
  return layer.exchanges[static_cast<size_t>(exchange)];
}
int64_t exchange_wait_of(const ExpertLayerUse& layer, ExpertExchange forward, ExpertExchange backward) {
  return exchange_of(layer, forward).wait_ns + exchange_of(layer, backward).wait_ns;
}

// "-" for what is unknown: the times of an analysis that has found no exchange.
Cell known_wait(const ExpertUse& use, int64_t wait_ns) { return use.exchanges > 0 ? Cell(Ns{wait_ns}) : Cell(); }
Cell known_number(int64_t number) { return number < 0 ? Cell() : Cell(number); }
Cell known_ratio(const Unevenness& uneven) { return uneven.largest < 0 ? Cell() : Cell(Real{uneven.max_of_mean, 2}); }

bool shows_row(size_t row, int64_t top) { return top == 0 || row < static_cast<size_t>(top); }

double mean_tokens_of(const ExpertLayerUse& layer) {
  if (layer.of_experts.largest < 0) return 0;
  return static_cast<double>(layer.tokens[static_cast<size_t>(layer.of_experts.largest)]) /
         layer.of_experts.max_of_mean;
}

constexpr std::string_view kExchangeKeys[core::trace::kNumExpertExchanges] = {"dispatch", "combine",
                                                                              "dispatch_gradient", "combine_gradient"};

void write_token_counts(JsonWriter& json, std::string_view key, const std::vector<int64_t>& numbers) {
  json.key(key).begin_array();
  for (const int64_t number : numbers) number == kUnknownTokens ? json.null() : json.value(number);
  json.end_array();
}

void write_expert_layer_name(JsonWriter& json, const ExpertLayer& layer) {
  json.key("layer").value(layer.layer);
  json.key("mtp");
  layer.mtp < 0 ? json.null() : json.value(layer.mtp);
}

void write_expert_layer(JsonWriter& json, const ExpertLayerUse& layer) {
  json.begin_object();
  write_expert_layer_name(json, layer.layer);
  write_token_counts(json, "tokens", layer.tokens);
  json.key("max_of_mean").decimal(layer.of_experts.max_of_mean, 6);
  json.key("cv").decimal(layer.of_experts.cv, 6);
  write_token_counts(json, "hot", layer.hot);
  write_token_counts(json, "dead", layer.dead);
  json.key("tokens_of_ranks").begin_object();
  for (const auto& [rank, tokens] : layer.by_rank) json.key(std::to_string(rank)).value(tokens);
  json.end_object();
  json.key("ranks_max_of_mean").decimal(layer.of_ranks.max_of_mean, 6);
  json.key("ranks_cv").decimal(layer.of_ranks.cv, 6);
  for (size_t i = 0; i < layer.exchanges.size(); ++i) {
    json.key(core::cat(kExchangeKeys[i], "_exchanges")).value(layer.exchanges[i].instances);
    json.key(core::cat(kExchangeKeys[i], "_wait_us")).us(layer.exchanges[i].wait_ns);
  }
  json.key("wait_us").us(layer.wait_ns());
  json.end_object();
}

void write_expert_step(JsonWriter& json, const ExpertStepUse& step) {
  json.begin_object();
  json.key("step").value(step.step);
  json.key("tokens").value(step.tokens);
  json.key("max_of_mean").decimal(step.max_of_mean, 6);
  json.key("cv").decimal(step.cv, 6);
  json.key("worst").begin_object();
  write_expert_layer_name(json, step.worst_layer);
  json.key("expert").value(step.worst.largest);
  json.key("max_of_mean").decimal(step.worst.max_of_mean, 6);
  json.end_object();
  json.key("wait_us").us(step.wait_ns);
  json.end_object();
}

}  // namespace

DataTable expert_layers_table(const Store&, const Results& results, int64_t) {
  const ExpertUse* use = results.get<ExpertUse>();
  if (use == nullptr) return {};
  DataTable table("experts", "Experts by layer",
                  {{"layer", Unit::kText},
                   {"tokens"},
                   {"max_of_mean", Unit::kReal},
                   {"cv", Unit::kReal},
                   {"hottest"},
                   {"hot"},
                   {"dead"},
                   {"ranks_max", Unit::kReal},
                   {"ranks_cv", Unit::kReal, true},
                   {"busiest_rank"},
                   {"dispatch_wait", Unit::kTime},
                   {"combine_wait", Unit::kTime},
                   {"forward_wait", Unit::kTime, true},
                   {"backward_wait", Unit::kTime, true}});
  using enum ExpertExchange;
  for (const ExpertLayerUse& layer : use->layers) {
    int64_t tokens = 0;
    for (const int64_t count : layer.tokens) tokens += std::max<int64_t>(count, 0);
    table.add({expert_layer_text(layer.layer), tokens, known_ratio(layer.of_experts), Real{layer.of_experts.cv, 2},
               known_number(layer.of_experts.largest), std::ssize(layer.hot), std::ssize(layer.dead),
               known_ratio(layer.of_ranks), Real{layer.of_ranks.cv, 2}, known_number(layer.of_ranks.largest),
               known_wait(*use, exchange_wait_of(layer, kDispatch, kDispatchGradient)),
               known_wait(*use, exchange_wait_of(layer, kCombine, kCombineGradient)),
               known_wait(*use, exchange_wait_of(layer, kDispatch, kCombine)),
               known_wait(*use, exchange_wait_of(layer, kDispatchGradient, kCombineGradient))});
  }
  return table;
}

DataTable expert_ranks_table(const Store&, const Results& results, int64_t) {
  const ExpertUse* use = results.get<ExpertUse>();
  if (use == nullptr) return {};
  DataTable table("expert_ranks", use->by_expert_rank ? "Experts by expert-parallel rank" : "Experts by rank",
                  {{"rank"},
                   {"tokens"},
                   {"of_mean", Unit::kReal},
                   {"exchanges"},
                   {"times_last"},
                   {"waited", Unit::kTime},
                   {"others_waited", Unit::kTime}});
  for (const ExpertRankUse& rank : use->ranks) {
    table.add({int64_t{rank.rank}, rank.tokens, Real{rank.of_mean, 2}, rank.instances, rank.times_last,
               known_wait(*use, rank.wait_ns), known_wait(*use, rank.blame_ns)});
  }
  return table;
}

DataTable expert_waits_table(const Store&, const Results& results, int64_t top) {
  const ExpertUse* use = results.get<ExpertUse>();
  if (use == nullptr) return {};
  DataTable table("expert_waits", "Who waits for whom in the exchanges of a layer",
                  {{"layer", Unit::kText}, {"rank"}, {"waits_for"}, {"times"}, {"wait", Unit::kTime}});
  for (size_t i = 0; i < use->waits.size() && shows_row(i, top); ++i) {
    const ExpertWait& wait = use->waits[i];
    table.add(
        {expert_layer_text(wait.layer), int64_t{wait.rank}, int64_t{wait.waits_for}, wait.instances, Ns{wait.wait_ns}});
  }
  return table;
}

DataTable expert_steps_table(const Store&, const Results& results, int64_t top) {
  const ExpertUse* use = results.get<ExpertUse>();
  if (use == nullptr) return {};
  DataTable table("expert_steps", "Experts over time",
                  {{"step"},
                   {"tokens"},
                   {"max_of_mean", Unit::kReal},
                   {"cv", Unit::kReal},
                   {"worst_layer", Unit::kText},
                   {"worst_expert"},
                   {"its_max_of_mean", Unit::kReal},
                   {"wait", Unit::kTime}});
  const size_t steps = use->steps.size();
  const size_t rows = top == 0 ? steps : std::min(steps, static_cast<size_t>(top));
  for (size_t row = 0; row < rows; ++row) {
    const ExpertStepUse& step = use->steps[rows == 1 ? steps - 1 : row * (steps - 1) / (rows - 1)];
    table.add({known_number(step.step), step.tokens, Real{step.max_of_mean, 2}, Real{step.cv, 2},
               expert_layer_text(step.worst_layer), known_number(step.worst.largest), known_ratio(step.worst),
               known_wait(*use, step.wait_ns)});
  }
  return table;
}

DataTable hot_experts_table(const Store&, const Results& results, int64_t top) {
  const ExpertUse* use = results.get<ExpertUse>();
  if (use == nullptr) return {};
  struct Row {
    const ExpertLayerUse* layer;
    int64_t expert;
    double of_mean;
  };
  std::vector<Row> rows;
  for (const ExpertLayerUse& layer : use->layers) {
    for (const int64_t expert : layer.hot)
      rows.push_back(
          {&layer, expert, static_cast<double>(layer.tokens[static_cast<size_t>(expert)]) / mean_tokens_of(layer)});
  }
  std::ranges::stable_sort(rows, std::greater(), &Row::of_mean);
  for (const ExpertLayerUse& layer : use->layers) {
    for (const int64_t expert : layer.dead) rows.push_back({&layer, expert, 0});
  }
  DataTable table(
      "hot_experts", "Hot and dead experts",
      {{"layer", Unit::kText}, {"expert"}, {"what", Unit::kText}, {"tokens"}, {"of_mean", Unit::kReal}, {"rank"}});
  for (size_t i = 0; i < rows.size() && shows_row(i, top); ++i) {
    const auto& [layer, expert, of_mean] = rows[i];
    const auto e = static_cast<size_t>(expert);
    table.add({expert_layer_text(layer->layer), expert, std::string(of_mean > 0 ? "hot" : "dead"), layer->tokens[e],
               Real{of_mean, 2}, known_number(layer->holders[e])});
  }
  return table;
}

void write_experts(JsonWriter& json, const Results& results) {
  const ExpertUse* use = results.get<ExpertUse>();
  if (use == nullptr) return;
  json.key("experts").begin_object();
  json.key("source").value(expert_source_name(use->source));
  json.key("layers").begin_array();
  for (const ExpertLayerUse& layer : use->layers) write_expert_layer(json, layer);
  json.end_array();
  json.key("ranks").begin_array();
  for (const ExpertRankUse& rank : use->ranks) {
    json.begin_object();
    json.key(use->by_expert_rank ? "expert_rank" : "rank").value(rank.rank);
    json.key("tokens").value(rank.tokens);
    json.key("of_mean").decimal(rank.of_mean, 6);
    json.key("exchanges").value(rank.instances);
    json.key("times_last").value(rank.times_last);
    json.key("wait_us").us(rank.wait_ns);
    json.key("blame_us").us(rank.blame_ns);
    json.end_object();
  }
  json.end_array();
  json.key("steps").begin_array();
  for (const ExpertStepUse& step : use->steps) write_expert_step(json, step);
  json.end_array();
  json.key("waits").begin_array();
  for (const ExpertWait& wait : use->waits) {
    json.begin_object();
    write_expert_layer_name(json, wait.layer);
    json.key("rank").value(wait.rank);
    json.key("waits_for").value(wait.waits_for);
    json.key("times").value(wait.instances);
    json.key("wait_us").us(wait.wait_ns);
    json.end_object();
  }
  json.end_array();
  json.key("exchanges").value(use->exchanges);
  json.key("wait_us").us(use->wait_ns);
  json.end_object();
}

}  // namespace ms::profile
