// DualPipeV's pairs of a forward and a backward, interleaved, change no bit.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/train/loop/interleaved_pairs.h"
#include "train/loop/random_batch.h"
#include "train/loop/swap.h"

namespace ms::train {
namespace {

using Change = std::function<void(TrainerConfig&)>;

// Loss and gradients of a step, as bytes, of each rank.
using Bits = std::vector<std::string>;

Bits bits_of_step(const TrainerConfig& config, bool pairs, bool delays_weights) {
  Bits bits(kRanks);
  test::run_thread_ranks(kRanks, [&](core::Endpoint& endpoint) {
    PipelineRank rank(endpoint, config, kMicrobatches);
    rank.batch = random_batch(rank.config, 1, kMicrobatches, 0);
    const auto swap = RunSwap::open(*rank.state);
    if (swap != nullptr) swap->serve(rank.stage);
    layout::ScheduleSettings settings = rank.config.schedule_settings();
    EXPECT_TRUE(settings.pairs);
    settings.pairs = pairs, settings.delays_weights_of_pairs = delays_weights;
    rank.runner.set_schedule(settings);
    for (int step = 0; step < 2; ++step) {  // the second one on what the first has left
      rank.parameters->zero_grads();
      const double loss = rank.step().loss;
      const core::TensorView grads = rank.parameters->grads();
      std::string& own = bits[static_cast<size_t>(endpoint.rank())];
      own.append(reinterpret_cast<const char*>(&loss), sizeof(loss));
      own.append(reinterpret_cast<const char*>(grads.bytes()), static_cast<size_t>(grads.size_bytes()));
    }
  });
  return bits;
}

struct Case {
  const char* name;
  Change change;
};
const Case kCases[] = {
    {"plain", [](TrainerConfig&) {}},
    {"bf16", [](TrainerConfig& config) { config.training.bf16 = true; }},
    {"GPT with dropout",
     [](TrainerConfig& config) {
       config.model.swiglu = false;
       config.model.add_bias_linear = true;
       config.model.normalization = "LayerNorm";
       config.model.position_embedding_type = "learned_absolute";
       config.model.hidden_dropout = config.model.attention_dropout = 0.2;
     }},
    {"norms behind attention and MLP", [](TrainerConfig& config) { config.model.post_norm = true; }},
    {"tied embeddings", [](TrainerConfig& config) { config.model.untie_embeddings_and_output_weights = false; }},
    {"a layer recomputed",
     [](TrainerConfig& config) {
       config.training.recompute_granularity = "full";
       config.training.recompute_method = "block";
       config.training.recompute_num_layers = 1;
     }},
    {"groups of layers recomputed",
     [](TrainerConfig& config) {
       config.training.recompute_granularity = "full";
       config.training.recompute_method = "uniform";
       config.training.recompute_num_layers = 2;
     }},
    {"parts recomputed",
     [](TrainerConfig& config) {
       config.training.recompute_norm = config.training.recompute_activation_function = true;
     }},
    {"loss in chunks", [](TrainerConfig& config) { config.training.loss_chunk_size = 5; }},
    {"swapped",
     [](TrainerConfig& config) {
       config.training.swap_attention = true;
       config.training.swap_modules = "input_norm,self_attention,post_attention_norm";
       config.training.swap_min_tensor_kib = 0;
     }},
    {"uneven stages",
     [](TrainerConfig& config) {
       config.parallel.num_layer_list = {1, 3, 0, 4};
     }},
};

TEST(Interleaving, ChangesNoBit) {
  for (const bool sequence_parallel : {false, true}) {
    for (const Case& of : kCases) {
      const bool detached = of.name == kCases[0].name || of.name == kCases[5].name;
      SCOPED_TRACE(core::cat(of.name, sequence_parallel ? " SP" : "", detached ? " detached" : ""));
      const test::TemporaryFolder folder;
      TrainerConfig config = pipeline_config(folder, sequence_parallel, detached);
      of.change(config);
      const Bits apart = bits_of_step(config, /*pairs=*/false, /*delays_weights=*/false);
      EXPECT_TRUE(apart == bits_of_step(config, true, false));
      EXPECT_TRUE(apart == bits_of_step(config, true, true)) << "weights delayed";
    }
  }
}

}  // namespace
}  // namespace ms::train
