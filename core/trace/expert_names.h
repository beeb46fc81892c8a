// The names under which a trace has what the experts of a model do: counters of their tokens, and annotations around
// the exchanges of rows between ranks. train writes them, profile reads them.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ms::core::trace {

// A layer with experts: of the decoder, counted from 0 over all pipeline stages, or of a module of multi-token
// prediction.
struct ExpertLayer {
  int64_t mtp = -1;  // -1: of the decoder
  int64_t layer = 0;
  auto operator<=>(const ExpertLayer&) const = default;
};
// "layer 3", "mtp 0 layer 0"
std::string expert_layer_name(const ExpertLayer& layer);

enum class ExpertCount : uint8_t {
  kRows,       // "rows": tokens that this rank computes with the expert
  kPartRows,   // "rows of part": the same, of an expert whose rows the first of the ranks that share it counts, too
  kChosen,     // "chosen": tokens of this rank that chose the expert, wherever it is
  kAllTokens,  // "tokens": of all ranks
};
// A sample is of one step, in which it lies: the number of tokens of an expert, summed over micro-batches.
struct ExpertCounter {
  ExpertLayer layer;
  int64_t expert = 0;  // of the layer, in the model's order
  ExpertCount count = ExpertCount::kRows;
  int64_t rank = -1;  // of kAllTokens: the one of the expert-parallel group that has the expert; -1: not told
  bool operator==(const ExpertCounter&) const = default;
};
inline constexpr int64_t kMaxCountedExperts = 4096, kMaxCountedLayers = 4096;
// "moe layer 3 expert 12 rows", "moe layer 3 expert 12 tokens on rank 1"
std::string expert_counter_name(const ExpertCounter& counter);
// The other way; nullopt: another name, or a layer or expert at or beyond the limits.
std::optional<ExpertCounter> parse_expert_counter(std::string_view name);

enum class ExpertExchange : uint8_t { kDispatch, kCombine, kDispatchGradient, kCombineGradient };
inline constexpr int kNumExpertExchanges = 4;
// "moe-dispatch layer 3": annotates the calls that post an exchange, and those that wait for it.
std::string expert_exchange_name(ExpertExchange exchange, const ExpertLayer& layer);
struct ExchangeOfLayer {
  ExpertExchange exchange = ExpertExchange::kDispatch;
  ExpertLayer layer;
  bool operator==(const ExchangeOfLayer&) const = default;
};
std::optional<ExchangeOfLayer> parse_expert_exchange(std::string_view name);

}  // namespace ms::core::trace
