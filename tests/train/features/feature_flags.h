// A small model whose flags switch features on, or break their rules.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "train/config.h"
#include "train/features/active_features.h"

namespace ms::train {

using Flags = std::vector<std::string>;

inline constexpr int kRanks = 8;
inline constexpr const char* kGrid = MS_TEST_DATA "/train/mask_grids/causal_8.txt";
inline const Flags kModel = {
    "--num-layers", "4",   "--hidden-size",      "64", "--num-attention-heads", "4",  "--vocab-size",  "96",
    "--seq-length", "32",  "--micro-batch-size", "1",  "--global-batch-size",   "16", "--train-iters", "9",
    "--lr",         "1e-3"};

// A small model, and flags.
inline TrainerConfig parse(const Flags& flags) {
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  Flags all = kModel;
  all.insert(all.end(), flags.begin(), flags.end());
  fields.parse_flags(all);
  return config;
}

// Of a run on kRanks ranks: why it is refused, or nothing.
inline std::string refusal(const Flags& flags) {
  TrainerConfig config = parse(flags);
  try {
    config.resolve_and_validate(kRanks);
  } catch (const core::Error& e) {
    EXPECT_EQ(core::exit_code(e.code()), 2);
    return e.what();
  }
  return "";
}

// Names of the features that are on.
inline std::set<std::string> active(const Flags& flags) {
  TrainerConfig config = parse(flags);
  config.resolve_and_validate(kRanks);
  std::set<std::string> names;
  for (const ActiveFeature& feature : active_features(config)) names.insert(feature.name);
  return names;
}

inline const Flags kLocal = {"--non-persistent-ckpt-type", "local", "--non-persistent-local-ckpt-dir", "d"};
inline const Flags kReplicated = {
    "--non-persistent-ckpt-type", "local", "--non-persistent-local-ckpt-dir", "d", "--replication",
    "--replication-jump",         "4"};

// A model with latent attention, and more flags.
inline Flags latent(const Flags& more = {}) {
  Flags flags = {"--disable-bias-linear", "--multi-latent-attention",
                 "--kv-lora-rank",        "6",
                 "--qk-head-dim",         "4",
                 "--qk-pos-emb-head-dim", "2",
                 "--v-head-dim",          "4"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// A model with a layer of multi-token prediction, and more flags.
inline Flags further(const Flags& more = {}) {
  Flags flags = {"--disable-bias-linear", "--position-embedding-type", "rope", "--mtp-num-layers", "1"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// Samples of their own lengths on as many of 4 ranks as they need, and more flags.
inline Flags chosen_degrees(const Flags& more = {}) {
  Flags flags = {"--hybrid-context-parallel",   "--variable-seq-lengths",
                 "--context-parallel-size",     "4",
                 "--max-seqlen-per-dp-cp-rank", "32",
                 "--calculate-per-token-loss"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

}  // namespace ms::train
