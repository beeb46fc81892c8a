#include "profile/ingest/router_trace.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/trace/expert_names.h"

namespace ms::profile {
namespace {

using core::cat;
using core::trace::ExpertCount;
using core::trace::ExpertLayer;

constexpr int64_t kRoutingStepNs = 1'000'000, kMaxRoutingStep = int64_t{1} << 40, kMaxRoutingRanks = int64_t{1} << 24;
constexpr size_t kMaxRoutingLine = size_t{64} << 20;

// The tokens of each expert of a layer.
struct RoutedLayer {
  ExpertLayer layer;
  std::vector<int64_t> tokens;
  std::vector<int64_t> ranks;  // of the expert-parallel group, that have the experts; empty: not told
};

struct RoutingRecord {
  int64_t step = -1, rank = -1;  // rank -1: of all ranks
  ExpertCount count = ExpertCount::kChosen;
  std::vector<RoutedLayer> layers;
};

// Reads one line from the front. All functions return false at the first contradiction; nesting costs no stack.
class RoutingLine {
 public:
  explicit RoutingLine(std::string_view line) : at_(line.data()), end_(line.data() + line.size()) {}

  bool at_end() {
    skip_space();
    return at_ == end_;
  }
  bool take(char c) {
    skip_space();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool integer(int64_t least, int64_t end, int64_t& value) {
    skip_space();
    const auto [next, error] = std::from_chars(at_, end_, value);
    if (error != std::errc() || value < least || value >= end) return false;
    at_ = next;
    return at_ == end_ || (*at_ != '.' && *at_ != 'e' && *at_ != 'E');
  }
  // Without its quotes, escapes as they are.
  bool string(std::string_view& text) {
    if (!take('"')) return false;
    const char* const start = at_;
    while (at_ != end_ && *at_ != '"') at_ += *at_ == '\\' && end_ - at_ > 1 ? 2 : 1;
    if (at_ == end_) return false;
    text = {start, static_cast<size_t>(at_ - start)};
    ++at_;
    return true;
  }
  // Any value.
  bool skip_value() {
    int64_t depth = 0;
    do {
      skip_space();
      if (at_ == end_) return false;
      const char c = *at_;
      std::string_view text;
      if (c == '"') {
        if (!string(text)) return false;
      } else if (c == '[' || c == '{') {
        ++depth, ++at_;
      } else if (c == ']' || c == '}') {
        if (--depth < 0) return false;
        ++at_;
      } else if (c == ',' || c == ':') {
        if (depth == 0) return false;
        ++at_;
      } else {
        const char* const start = at_;
        while (at_ != end_ &&
               std::string_view("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ").find(*at_) !=
                   std::string_view::npos) {
          ++at_;
        }
        if (at_ == start) return false;
      }
    } while (depth > 0);
    return true;
  }
  // Calls member(key), which reads the value, for each member of an object.
  template <class Member>
  bool object(const Member& member) {
    if (!take('{')) return false;
    if (take('}')) return true;
    do {
      std::string_view key;
      if (!string(key) || !take(':') || !member(key)) return false;
    } while (take(','));
    return take('}');
  }
  template <class Element>
  bool array(const Element& element) {
    if (!take('[')) return false;
    if (take(']')) return true;
    do {
      if (!element()) return false;
    } while (take(','));
    return take(']');
  }

 private:
  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  const char *at_, *end_;
};

constexpr int64_t kNoRoutingLimit = INT64_MAX;

// top_indices: the experts of each token; -1: none.
bool read_routing_choices(RoutingLine& in, int64_t& tokens, int64_t& topk, std::vector<int64_t>& counts) {
  tokens = 0, topk = -1;
  return in.array([&] {
    int64_t choices = 0;
    const bool whole = in.array([&] {
      int64_t expert = 0;
      if (!in.integer(-1, core::trace::kMaxCountedExperts, expert)) return false;
      ++choices;
      if (expert < 0) return true;
      if (std::ssize(counts) <= expert) counts.resize(static_cast<size_t>(expert) + 1);
      ++counts[static_cast<size_t>(expert)];
      return true;
    });
    if (!whole || (topk >= 0 && choices != topk)) return false;
    topk = choices;
    ++tokens;
    return true;
  });
}

// A layer of mstrain's metrics.
bool read_routed_layer(RoutingLine& in, RoutedLayer& layer) {
  const bool whole = in.object([&](std::string_view key) {
    if (key == "layer") return in.integer(0, core::trace::kMaxCountedLayers, layer.layer.layer);
    if (key == "mtp") return in.integer(0, core::trace::kMaxCountedLayers, layer.layer.mtp);
    if (key == "ranks") {
      return in.array([&] {
        return in.integer(0, core::trace::kMaxCountedExperts, layer.ranks.emplace_back()) &&
               std::ssize(layer.ranks) <= core::trace::kMaxCountedExperts;
      });
    }
    if (key != "tokens") return in.skip_value();
    return in.array([&] {
      int64_t tokens = 0;
      if (!in.integer(0, kNoRoutingLimit, tokens) || std::ssize(layer.tokens) == core::trace::kMaxCountedExperts)
        return false;
      layer.tokens.push_back(tokens);
      return true;
    });
  });
  if (layer.layer.mtp >= 0) layer.layer.layer = 0;  // metrics count it behind the decoder's
  return whole && (layer.ranks.empty() || layer.ranks.size() == layer.tokens.size());
}

// Nullopt: the line contradicts the format. Without layers: it has no experts.
std::optional<RoutingRecord> read_routing_record(std::string_view line) {
  RoutingLine in(line);
  RoutingRecord record;
  ExpertLayer layer;
  int64_t claimed_tokens = -1, claimed_topk = -1, tokens = 0, topk = -1;
  std::optional<std::vector<int64_t>> chosen;
  const bool whole = in.object([&](std::string_view key) {
    if (key == "step") return in.integer(0, kMaxRoutingStep, record.step);
    if (key == "iteration") return in.integer(1, kMaxRoutingStep, record.step) && --record.step >= 0;
    if (key == "layer") return in.integer(0, core::trace::kMaxCountedLayers, layer.layer);
    if (key == "mtp_idx") return in.integer(0, core::trace::kMaxCountedLayers, layer.mtp);
    if (key == "rank") return in.integer(0, kMaxRoutingRanks, record.rank);
    if (key == "num_tokens") return in.integer(0, kNoRoutingLimit, claimed_tokens);
    if (key == "topk") return in.integer(0, kNoRoutingLimit, claimed_topk);
    if (key == "top_indices") return read_routing_choices(in, tokens, topk, chosen.emplace());
    if (key != "experts") return in.skip_value();
    record.count = ExpertCount::kAllTokens;
    return in.array([&] { return read_routed_layer(in, record.layers.emplace_back()); });
  });
  if (!whole || !in.at_end() || record.step < 0) return std::nullopt;
  if (!chosen) return record.count == ExpertCount::kAllTokens || record.rank < 0 ? std::optional(record) : std::nullopt;
  const bool fits = tokens == claimed_tokens && (tokens == 0 || topk == claimed_topk);
  if (record.rank < 0 || !fits || record.count != ExpertCount::kChosen) return std::nullopt;
  record.layers.push_back({layer, std::move(*chosen)});
  return record;
}

class RoutingReader {
 public:
  RoutingReader(const std::string& path, RankTrace& trace, ImportStats& stats)
      : path_(path), trace_(trace), stats_(stats) {
    trace_.lanes.push_back({.device = false, .process = 0, .id = 0});
    category_ = trace_.category("user_annotation", Side::kAnnotation);
  }

  void add_line(std::string_view line, int64_t offset) {
    if (RoutingLine(line).at_end()) return;
    std::optional<RoutingRecord> record = read_routing_record(line);
    const bool of_another = record && rank_ && *rank_ != record->rank;
    if (!record || of_another) {
      ++wrong_;
      stats_.add("bad_event", cat(path_, ": byte ", offset, ": ",
                                  of_another ? "another rank: " : "no routing record: ", line.substr(0, 60)));
      return;
    }
    if (record->layers.empty() && record->rank < 0) return;  // a line of metrics without experts
    if (record->step != step_) flush();
    step_ = record->step;
    rank_ = record->rank;
    count_ = record->count;
    for (const RoutedLayer& layer : record->layers) {
      std::vector<int64_t>& sums = sums_[layer.layer];
      if (sums.size() < layer.tokens.size()) sums.resize(layer.tokens.size());
      ranks_[layer.layer] = layer.ranks;
      for (size_t e = 0; e < layer.tokens.size(); ++e) sums[e] += std::min(layer.tokens[e], INT64_MAX - sums[e]);
    }
    ++records_;
  }

  // cut: the last line is not whole. Returns false if the file is sound and has no record.
  bool finish(bool cut, FileInfo& file) {
    flush();
    if (records_ == 0 && wrong_ == 0 && !cut) return false;
    if (records_ == 0) {
      throw core::Error(core::ErrorCode::kCorruptData,
                        cat(path_, ": has no routing record (--moe-routing-trace-path) and no metrics of experts"));
    }
    trace_.rank = trace_.file_rank = static_cast<int>(std::max<int64_t>(*rank_, 0));
    trace_.by_phase['C'] = static_cast<int64_t>(trace_.counters.size());
    trace_.by_phase['X'] = static_cast<int64_t>(trace_.events.size());
    file.events = records_;
    finish_trace(trace_);
    return true;
  }

 private:
  // Writes the sums of a step, in zeros too: of experts that have had tokens in the file before.
  void flush() {
    if (sums_.empty()) return;
    const int64_t ts = step_ * kRoutingStepNs;
    if (steps_.insert(step_).second) add_annotation(ts);
    for (const auto& [layer, tokens] : sums_) {
      const std::vector<int64_t>& ranks = ranks_[layer];
      for (int64_t e = 0; e < std::ssize(tokens); ++e) {
        const auto index = static_cast<size_t>(e);
        const bool chosen = tokens[index] > 0 || count_ == ExpertCount::kAllTokens;
        if (!chosen) continue;
        const NameId name = name_of({layer, e, count_, index < ranks.size() ? ranks[index] : -1});
        trace_.counters.push_back({ts, static_cast<double>(tokens[index]), name, 0});
      }
    }
    sums_.clear();
  }

  // Expert e of most layers has one name in all steps: it is kept by layer and expert.
  NameId name_of(const core::trace::ExpertCounter& counter) {
    std::vector<NamedCounter>& names = names_[counter.layer];
    const auto e = static_cast<size_t>(counter.expert);
    if (names.size() <= e) names.resize(e + 1);
    NamedCounter& named = names[e];
    if (!named.id || named.rank != counter.rank)
      named = {trace_.names.intern(core::trace::expert_counter_name(counter)), counter.rank};
    return *named.id;
  }

  void add_annotation(int64_t ts) {
    Events& events = trace_.events;
    if (trace_.keep_file_order) events.file_order.push_back(static_cast<uint32_t>(events.size()));
    events.ts.push_back(ts);
    events.dur.push_back(kRoutingStepNs);
    events.name.push_back(trace_.names.intern(cat("iteration ", step_)));
    events.category.push_back(category_);
    events.lane.push_back(0);
    for (Column<uint32_t>* column : {&events.correlation, &events.external, &events.comm, &events.details}) {
      column->push_back(0);
    }
  }

  const std::string& path_;
  RankTrace& trace_;
  ImportStats& stats_;
  uint8_t category_ = 0;
  int64_t step_ = -1, records_ = 0, wrong_ = 0;
  std::optional<int64_t> rank_;
  ExpertCount count_ = ExpertCount::kChosen;
  std::map<ExpertLayer, std::vector<int64_t>> sums_;   // of the step
  std::map<ExpertLayer, std::vector<int64_t>> ranks_;  // of the step's experts, if they are told
  struct NamedCounter {
    std::optional<NameId> id;
    int64_t rank = -1;
  };
  std::map<ExpertLayer, std::vector<NamedCounter>> names_;
  std::set<int64_t> steps_;
};

}  // namespace

bool is_router_trace(std::string_view first) {
  if (first.starts_with("\xef\xbb\xbf")) first.remove_prefix(3);
  const size_t start = first.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos || first[start] != '{') return false;
  const std::string_view line = first.substr(start, first.find('\n', start) - start);
  const std::string_view before = line.substr(0, line.find('['));
  const auto has = [&](std::string_view key) { return before.find(key) != std::string_view::npos; };
  return (has("\"num_tokens\"") && has("\"topk\"")) || (has("\"iteration\"") && has("\"consumed_train_samples\""));
}

bool read_router_trace(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file,
                       ImportStats& stats) {
  RoutingReader reader(path, trace, stats);
  std::string text;    // what has been read of lines that have not ended
  int64_t offset = 0;  // of its first byte
  bool oversized = false;
  constexpr size_t kRead = size_t{1} << 20;
  for (size_t got = 1; got > 0;) {
    const size_t had = text.size();
    text.resize(had + kRead);
    got = stream.read(text.data() + had, kRead);
    text.resize(had + got);
    size_t begin = offset == 0 && had == 0 && text.starts_with("\xef\xbb\xbf") ? 3 : 0;  // the byte order mark
    for (size_t end = text.find('\n', had); end != std::string::npos; end = text.find('\n', begin)) {
      if (!oversized)
        reader.add_line(std::string_view(text).substr(begin, end - begin), offset + static_cast<int64_t>(begin));
      oversized = false;
      begin = end + 1;
    }
    text.erase(0, begin);
    offset += static_cast<int64_t>(begin);
    if (text.size() > kMaxRoutingLine) {
      if (!oversized) stats.add("oversized_event", cat(path, ": byte ", offset));
      oversized = true;
      offset += static_cast<int64_t>(text.size());
      text.clear();
    }
  }
  const bool cut = !oversized && !RoutingLine(text).at_end() && !read_routing_record(text);
  if (cut) {
    stats.add("truncated", cat(path, ": ends within the record at byte ", offset));
  } else if (!oversized) {
    reader.add_line(text, offset);
  }
  return reader.finish(cut, file);
}

}  // namespace ms::profile
