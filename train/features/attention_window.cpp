#include "train/features/attention_window.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr int64_t kDefaultMask = 0, kBand = 4;  // ops::SparseMode

bool reads_tockens(const TrainerConfig& config) {
  return config.training.sparse_mode == kDefaultMask || config.training.sparse_mode == kBand;
}
bool has_windows(const TrainerConfig& config) {
  return config.model.sliding_window > 0 || config.model.interleave_sliding_window > 0;
}

constexpr int64_t kMaxKeys = int64_t{1} << 40;

// "L,R", in parentheses or not, as Megatron's tuple_type reads it. L: -1 or a number of keys.
std::optional<std::pair<int64_t, int64_t>> read_window_size(std::string_view text) {
  constexpr std::string_view kOuter = "() ";
  const size_t begin = text.find_first_not_of(kOuter), last = text.find_last_not_of(kOuter);
  if (begin == std::string_view::npos) return std::nullopt;
  text = text.substr(begin, last + 1 - begin);
  std::pair<int64_t, int64_t> sizes;
  const char* const end = text.data() + text.size();
  const auto left = std::from_chars(text.data(), end, sizes.first);
  const char* right = left.ptr;
  if (left.ec != std::errc() || right == end || *right++ != ',') return std::nullopt;
  while (right < end && *right == ' ') ++right;
  const auto right_end = std::from_chars(right, end, sizes.second);
  if (right_end.ec != std::errc() || right_end.ptr != end || sizes.first < -1 || sizes.first >= kMaxKeys)
    return std::nullopt;
  return sizes;
}

bool is_number_of_keys(std::optional<int64_t> keys) { return keys && *keys >= 0 && *keys < kMaxKeys; }

struct WantedWindow {
  std::string flag;  // as a user gave it
  int64_t window;    // --sliding-window
};
// What each of the flags says, as --sliding-window counts: with the query's own key. Without those that say nothing, or
// nothing valid.
std::vector<WantedWindow> wanted_windows(const TrainingConfig& training) {
  std::vector<WantedWindow> wanted;
  if (const auto sizes = read_window_size(training.window_size))
    wanted.push_back({core::cat("--window-size ", training.window_size), sizes->first + 1});
  if (is_number_of_keys(training.pre_tockens) &&
      (training.sparse_mode == kDefaultMask || training.sparse_mode == kBand))
    wanted.push_back({core::cat("--pre-tockens ", *training.pre_tockens), *training.pre_tockens + 1});
  return wanted;
}

// Flags that contradict each other are left for check_attention_window.
void resolve_attention_window(TrainerConfig& config) {
  core::TransformerConfig& model = config.model;
  for (const WantedWindow& wanted : wanted_windows(config.training)) {
    if (!has_windows(config)) model.sliding_window = wanted.window;
  }
  const std::vector<int64_t> windows = model.windows_of_layers();
  const auto is_none = [](int64_t window) { return window == 0; };
  if (!windows.empty() && std::ranges::all_of(windows, is_none)) {  // by --window-attn-skip-freq
    if (read_window_size(config.training.window_size)) config.training.window_size.clear();
    if (is_number_of_keys(config.training.pre_tockens)) config.training.pre_tockens.reset();
  }
}

void check_sparse_mode(const TrainingConfig& training) {
  const int64_t mode = training.sparse_mode;
  const auto refuse = [&](const char* why) {
    throw core::Error(core::ErrorCode::kUnsupported, core::cat("--sparse-mode ", mode, why));
  };
  require(mode >= 0 && mode <= 8, "--sparse-mode ", mode, ": expected 0 to 6");
  if (mode > 6) refuse(": --reset-attention-mask keeps documents apart, with any ranks that share a sequence");
  for (const auto& [tokens, flag] :
       {std::pair{training.pre_tockens, "--pre-tockens"}, std::pair{training.next_tockens, "--next-tockens"}}) {
    require(!tokens || is_number_of_keys(tokens), flag, " ", tokens.value_or(0), ": expected a number of keys");
  }
  if (mode == kBand && training.next_tockens.value_or(0) > 0) {
    throw core::Error(core::ErrorCode::kUnsupported, core::cat("--next-tockens ", *training.next_tockens,
                                                               " with --sparse-mode 4: a query would see the "
                                                               "token that it predicts; give 0, or use the "
                                                               "operator ms::ops::fusion_attention"));
  }
}

void check_attention_window(const TrainerConfig& config, int) {
  check_sparse_mode(config.training);
  const std::string& size = config.training.window_size;
  if (!size.empty()) {
    const auto sizes = read_window_size(size);
    require(sizes.has_value(), "--window-size ", size, ": expected L,R: keys before a query, or -1 for all, and 0");
    if (sizes->second > 0) {
      throw core::Error(
          core::ErrorCode::kUnsupported,
          core::cat("--window-size ", size, ": a query would see the tokens behind it; give ", sizes->first, ",0"));
    }
    require(sizes->second >= -1, "--window-size ", size, ": expected ", sizes->first, ",0");
  }
  for (const WantedWindow& wanted : wanted_windows(config.training)) {
    const core::TransformerConfig& model = config.model;
    const char* other = model.interleave_sliding_window > 0 ? "--interleave-sliding-window" : "--sliding-window";
    require(model.interleave_sliding_window == 0 && wanted.window == model.sliding_window, wanted.flag, " and ", other,
            " ", std::max(model.interleave_sliding_window, model.sliding_window),
            " exclude each other: the same would be --sliding-window ", wanted.window);
  }
}

}  // namespace

Feature attention_window_feature() {
  return {
      .name = "attention-window",
      .level = 0,
      .effect = "Queries see no more than the keys of a window, and attention computes nothing beyond it",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<AttentionWindowConfig>("training", config.training); },
      .is_active = has_windows,
      .ineffective = {{[](const TrainerConfig& c) {
                         return c.training.pre_tockens && c.training.sparse_mode >= 0 && !reads_tockens(c);
                       },
                       "--pre-tockens has no effect with --sparse-mode 1, 2, 3, 5 or 6, which know no band"},
                      {[](const TrainerConfig& c) {
                         return c.training.next_tockens.value_or(0) > 0 && c.training.sparse_mode != kBand;
                       },
                       "--next-tockens has no effect without --sparse-mode 4: the causal mask hides what is behind a "
                       "query"},
                      {[](const TrainerConfig& c) { return c.model.window_attn_skip_freq != "0" && !has_windows(c); },
                       "--window-attn-skip-freq has no effect without a window: give --sliding-window or "
                       "--window-size"}},
      .resolve = resolve_attention_window,
      .check = check_attention_window,
  };
}

}  // namespace ms::train
