#include "core/trace/expert_names.h"

#include <array>
#include <charconv>

#include "core/error.h"

namespace ms::core::trace {
namespace {

constexpr std::array<std::string_view, 4> kCounts = {"rows", "rows of part", "chosen", "tokens"};
constexpr std::string_view kOnRank = " on rank ";
constexpr std::array<std::string_view, kNumExpertExchanges> kExchanges = {
    "moe-dispatch ", "moe-combine ", "moe-dispatch-gradient ", "moe-combine-gradient "};

// Takes parts off the front of a name.
class NameReader {
 public:
  explicit NameReader(std::string_view name) : rest_(name) {}
  std::string_view rest() const { return rest_; }

  bool word(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  // In [0, end).
  bool number(int64_t end, int64_t& value) {
    const auto [next, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0 || value >= end) return false;
    rest_.remove_prefix(static_cast<size_t>(next - rest_.data()));
    return true;
  }
  bool layer(ExpertLayer& layer) {
    if (word("mtp ") && !(number(kMaxCountedLayers, layer.mtp) && word(" "))) return false;
    return word("layer ") && number(kMaxCountedLayers, layer.layer);
  }

 private:
  std::string_view rest_;
};

}  // namespace

std::string expert_layer_name(const ExpertLayer& layer) {
  return layer.mtp < 0 ? cat("layer ", layer.layer) : cat("mtp ", layer.mtp, " layer ", layer.layer);
}

std::string expert_counter_name(const ExpertCounter& counter) {
  std::string name = cat("moe ", expert_layer_name(counter.layer), " expert ", counter.expert, " ",
                         kCounts[static_cast<size_t>(counter.count)]);
  return counter.rank < 0 ? name : cat(name, kOnRank, counter.rank);
}

std::optional<ExpertCounter> parse_expert_counter(std::string_view name) {
  NameReader reader(name);
  ExpertCounter counter;
  if (!reader.word("moe ") || !reader.layer(counter.layer) || !reader.word(" expert ") ||
      !reader.number(kMaxCountedExperts, counter.expert) || !reader.word(" ")) {
    return std::nullopt;
  }
  for (size_t i = 0; i < kCounts.size(); ++i) {
    NameReader end = reader;
    if (!end.word(kCounts[i])) continue;
    counter.count = static_cast<ExpertCount>(i);
    const bool has_rank = counter.count == ExpertCount::kAllTokens && end.word(kOnRank);
    if (has_rank && !end.number(kMaxCountedExperts, counter.rank)) return std::nullopt;
    if (end.rest().empty()) return counter;
  }
  return std::nullopt;
}

std::string expert_exchange_name(ExpertExchange exchange, const ExpertLayer& layer) {
  return cat(kExchanges[static_cast<size_t>(exchange)], expert_layer_name(layer));
}

std::optional<ExchangeOfLayer> parse_expert_exchange(std::string_view name) {
  for (size_t i = 0; i < kExchanges.size(); ++i) {
    NameReader reader(name);
    ExchangeOfLayer of{static_cast<ExpertExchange>(i), {}};
    if (reader.word(kExchanges[i]) && reader.layer(of.layer) && reader.rest().empty()) return of;
  }
  return std::nullopt;
}

}  // namespace ms::core::trace
