// How evenly the tokens of a model with experts are spread over experts and ranks, and what unevenness costs: the time
// that ranks wait in the exchanges of each layer. From the counters and annotations of core/trace/expert_names.h, which
// mstrain records, and ingest/router_trace.h makes of other records.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/trace/expert_names.h"
#include "profile/analysis/cross_rank.h"

namespace ms::profile {

// What the counts are of: rows that ranks have computed, choices of each rank's tokens (routing traces), or sums over
// all ranks (metrics). Of several, the first is used.
enum class ExpertSource : uint8_t { kRows, kChosen, kAllTokens };
std::string_view expert_source_name(ExpertSource source);  // "rows", "chosen", "tokens"

inline constexpr int64_t kUnknownTokens = -1;  // of an expert on a rank without a trace
inline constexpr double kHotExpert = 2;  // times the mean of a layer from which on an expert is hot, as in mstrain

// How uneven counts are. max_of_mean: the largest over the mean, 1 if all are equal; cv: standard deviation (of the
// population) over the mean. Both 0 without tokens.
struct Unevenness {
  double max_of_mean = 0, cv = 0;
  int64_t largest = -1;  // index
};
Unevenness unevenness(const std::vector<int64_t>& counts);  // without those that are unknown

struct ExchangeUse {
  int64_t instances = 0, wait_ns = 0;
};

struct ExpertLayerUse {
  core::trace::ExpertLayer layer;
  std::vector<int64_t> tokens;  // of each expert, over the steps; kUnknownTokens
  std::vector<int> holders;     // the lowest rank that has each expert; -1: unknown
  std::map<int, int64_t> by_rank;
  Unevenness of_experts, of_ranks;                                      // of_ranks.largest: a rank
  std::vector<int64_t> hot, dead;                                       // experts
  std::array<ExchangeUse, core::trace::kNumExpertExchanges> exchanges;  // by ExpertExchange
  int64_t wait_ns() const;
};

struct ExpertRankUse {
  int rank = 0;
  int64_t tokens = 0;
  double of_mean = 0;                 // over what the ranks of each of its layers have on average
  int64_t wait_ns = 0, blame_ns = 0;  // waited for others; others waited for it
  int64_t instances = 0, times_last = 0;
};

struct ExpertStepUse {
  int64_t step = -1;  // -1: a trace without steps
  int64_t tokens = 0;
  double max_of_mean = 0, cv = 0;        // means over the layers
  core::trace::ExpertLayer worst_layer;  // with the largest max_of_mean
  Unevenness worst;
  int64_t wait_ns = 0;
};

// Waiting of a rank for another, which arrived last, in the exchanges of a layer.
struct ExpertWait {
  core::trace::ExpertLayer layer;
  int rank = 0, waits_for = 0;
  int64_t instances = 0, wait_ns = 0;
};

// A rank waits in an exchange from its own arrival to the last one, or to the end of its own part, without the time in
// which it computes: what it computes meanwhile hides the exchange.
struct ExpertUse {
  ExpertSource source = ExpertSource::kRows;
  bool by_expert_rank = false;  // ranks are those of the expert-parallel group, by ExpertOptions
  std::vector<ExpertLayerUse> layers;
  std::vector<ExpertRankUse> ranks;
  std::vector<ExpertStepUse> steps;
  std::vector<ExpertWait> waits;  // by what they cost
  int64_t exchanges = 0;          // of all layers; 0: of traces without times, of one rank, or with unreliable clocks
  int64_t wait_ns = 0;
};

// What routing traces and metrics do not say.
struct ExpertOptions {
  int64_t num_experts = 0;      // of a layer; 0: up to the last one that a token has chosen
  int64_t expert_parallel = 0;  // ranks that the experts are distributed over; 0: unknown
};

// Whether a trace has nothing but what routers chose.
bool is_routing_record(const RankTrace& trace);

// Nullopt without counters of experts. Throws kInvalidArgument for options that contradict the counters.
std::optional<ExpertUse> expert_use(const std::vector<RankDevices>& ranks, const CrossRank& cross,
                                    const ExpertOptions& options);

}  // namespace ms::profile
