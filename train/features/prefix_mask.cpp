#include "train/features/prefix_mask.h"

#include <vector>

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kPrefixModes = "--sparse-mode 5 or 6";

bool has_prefix(const TrainerConfig& config) { return config.training.prefix_length != 0; }
bool has_prefix_mode(const TrainerConfig& config) {
  return config.training.sparse_mode == 5 || config.training.sparse_mode == 6;
}

std::vector<Rule> rules_of_prefixes() {
  const auto refused = [](const char* other, Condition holds, const char* why) {
    return excludes(kPrefixModes, has_prefix_mode, other, holds, why);
  };
  return {
      needs(kPrefixModes, has_prefix_mode, "--prefix-length", has_prefix, ": how many positions see each other"),
      needs("--prefix-length", has_prefix, kPrefixModes, has_prefix_mode),
      refused(
          "--reset-attention-mask or --dataloader-inter-document-masking",
          [](const TrainerConfig& c) { return keeps_documents_apart(c); },
          ": of several documents only the first would have a prefix"),
      refused(
          "--variable-seq-lengths", [](const TrainerConfig& c) { return c.parallel.variable_seq_lengths; },
          ": a sample may be shorter than the prefix"),
      refused(
          "--sliding-window or --interleave-sliding-window",
          [](const TrainerConfig& c) { return c.model.sliding_window > 0 || c.model.interleave_sliding_window > 0; },
          ": every query sees the prefix"),
      refused(
          "--position-embedding-type alibi", [](const TrainerConfig& c) { return c.model.has_alibi(); },
          ": ALiBi says nothing of keys behind a query"),
      refused(
          "--generate", [](const TrainerConfig& c) { return !c.generate.generate.empty(); },
          ": a text may be shorter than the prefix; give --sparse-mode 0, which attends it causally"),
  };
}

}  // namespace

Feature prefix_mask_feature() {
  return {
      .name = "prefix-mask",
      .level = 0,
      .effect = "The first positions of each sample see each other, and those behind them what is before",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<PrefixMaskConfig>("training", config.training); },
      .is_active = has_prefix,
      .rules = rules_of_prefixes(),
      .check =
          [](const TrainerConfig& config, int) {
            const int64_t length = config.training.prefix_length, seq = config.training.seq_length;
            require(length >= 0 && length < seq, "--prefix-length ", length,
                    ": expected a number of positions below --seq-length ", seq);
          },
  };
}

}  // namespace ms::train
