// Whole training runs, small enough for a test: a tiny Llama on generated text, on thread ranks.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/sharded_tensor.h"
#include "tests/support/temporary_folder.h"
#include "train/config.h"
#include "train/data/sampler.h"
#include "train/loop/trainer.h"

namespace ms::test {

struct TinyLayout {
  int tp = 1, pp = 1, dp = 1;
  int zero = 0;  // its stage
  bool sp = false;
  int vpp = 1;                // chunks of layers per stage, interleaved
  std::string schedule = {};  // of --schedules-method, maybe with " detached" or " delayed"; or "nanopipe"
  std::string overlap = {};   // of tensor parallelism: "tp", "coc2", "coc4" or "mc2"
  int cp = 1;
  // Of --cp-comm-type, or several, which layers have in turns ("p2p,a2a"), maybe with the number of neighbours that
  // exchange heads, else 2, or with that of a window's ranks: "a2a+p2p", "a2a+p2p u4", "p2p w2"; "adaptive" and
  // "hybrid_adaptive" of --context-parallel-algo; with the policy of a cache of keys, and its interval: "p2p full i2".
  std::string context = "a2a";
  int ranks() const { return tp * pp * dp * cp; }
  bool is_v() const { return schedule == "zb-v" || schedule.starts_with("dualpipev"); }
  int chunks() const { return is_v() ? 2 : vpp; }
  // "tp2_pp2_vpp2_dp2_zero_sp", "tp1_pp2_dp1_zb_v", "tp1_pp1_dp2_zero2_cp2_a2a"
  std::string name() const;
};

// Writes the data set (once per folder) and returns the configuration of a run on it: 4 layers, hidden 32, 8 heads in 4
// groups, vocabulary 257, sequence 16, global batch 4, constant learning rate, fp32.
train::TrainerConfig tiny_config(const std::filesystem::path& folder, const TinyLayout& layout = {});

// Gives that model another number of layers, which have the types of --cp-comm-type in the same turns.
void set_layers(train::TrainerConfig& config, int64_t layers);

// A dispatcher of the experts on ep ranks: one of --moe-token-dispatcher-type; "groups", alltoall of two groups of a
// rank's experts; "hierarchical", which replaces the sizes of EP and ETP that config has.
void set_dispatcher(train::TrainerConfig& config, std::string_view dispatcher, int ep, int tp);

// Micro-batches of one sample for that model, whose tokens follow from the first one drawn. Without documents.
std::vector<train::Microbatch> drawn_microbatches(size_t count, int32_t first_draw = 1);

using OpenSource = decltype(train::TrainerServices::open_source);

// Runs on config's ranks as threads (world: tp x pp x cp x dp of the layout); returns rank 0's summary. open_source:
// opens what --load names; reads native checkpoints if not given.
train::RunSummary run_on_threads(const train::TrainerConfig& config, int ranks, const OpenSource& open_source = {});

// The same, the summaries of all ranks.
std::vector<train::RunSummary> run_all_on_threads(const train::TrainerConfig& config, int ranks,
                                                  const OpenSource& open_source = {});

// The first tensor, in the order of execution, in which the first steps of two runs differ by more than `tolerance`
// (relative L2), for messages of tests that compare runs: "first apart: decoder.layers.0:output, relative L2 0.1".
std::string first_apart(const train::TrainerConfig& a, int ranks_a, const train::TrainerConfig& b, int ranks_b,
                        double tolerance);

// Whole tensors of a checkpoint, as fp32, by canonical name.
std::map<std::string, std::vector<float>> read_tensors(const std::filesystem::path& checkpoint, core::TensorRole role);

// What a run leaves: rank 0's summary, and the weights of the last checkpoint, by canonical name.
struct Outcome {
  train::RunSummary summary;
  std::map<std::string, std::vector<float>> weights;
};
// Runs on threads, and saves in the folder `save`.
Outcome outcome_of(train::TrainerConfig config, int ranks, const std::filesystem::path& save);

// Largest relative L2 distance |a - b| / |b| over the tensors; infinite if the names differ.
double largest_distance(const std::map<std::string, std::vector<float>>& a,
                        const std::map<std::string, std::vector<float>>& b);

// Losses and gradient norms of all steps, and the weights at the end, are equal to the last bit.
void expect_same_bits(const Outcome& seen, const Outcome& expected);

// DeepSeek's attention, with a low-rank vector of queries and norms: heads of queries and keys are larger than those of
// values.
void use_latent_attention(train::TrainerConfig& config);

}  // namespace ms::test
