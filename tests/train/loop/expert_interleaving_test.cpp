// Pairs of a forward and a backward whose tokens travel to experts of other ranks, interleaved (--moe-fb-overlap),
// change no bit; nor do gradients of experts' weights that are computed after them.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/train/loop/interleaved_pairs.h"
#include "train/loop/random_batch.h"

namespace ms::train {
namespace {

// Loss and gradients of two steps, as bytes, of each rank.
using Bits = std::vector<std::string>;

// The link is slow: who does not wait for an exchange reads what was there before.
Bits bits_of_steps(const TrainerConfig& config, int ranks, const layout::ScheduleSettings& settings) {
  Bits bits(static_cast<size_t>(ranks));
  test::run_thread_ranks(ranks,
                         [&](core::Endpoint& endpoint) {
                           PipelineRank rank(endpoint, config, kMicrobatches);
                           rank.batch = random_batch(rank.config, 1, kMicrobatches, rank.groups->at.dp);
                           rank.runner.set_schedule(settings);
                           for (int step = 0; step < 2; ++step) {
                             rank.parameters->zero_grads();
                             const double loss = rank.step().loss;
                             const core::TensorView grads = rank.parameters->grads();
                             std::string& own = bits[static_cast<size_t>(endpoint.rank())];
                             own.append(reinterpret_cast<const char*>(&loss), sizeof(loss));
                             own.append(reinterpret_cast<const char*>(grads.bytes()),
                                        static_cast<size_t>(grads.size_bytes()));
                           }
                         },
                         60, {.latency_s = 3e-4});
  return bits;
}

struct Case {
  const char* name;
  std::function<void(TrainerConfig&)> change;
};
const Case kCases[] = {
    {"plain", [](TrainerConfig&) {}},
    {"dense layers in between", [](TrainerConfig& config) { config.model.moe_layer_freq = "([1,0,1,1,0,0,1,1])"; }},
    {"bf16, a shared expert with a gate",
     [](TrainerConfig& config) {
       config.training.bf16 = true;
       config.model.moe_shared_expert_intermediate_size = 16;
       config.model.moe_shared_expert_gate = true;
     }},
    {"shared experts and gradients of weights beside exchanges",
     [](TrainerConfig& config) {
       config.model.moe_shared_expert_intermediate_size = 16;
       config.parallel.moe_alltoall_overlap_comm = true;
     }},
    {"dropout, a capacity",
     [](TrainerConfig& config) {
       config.model.hidden_dropout = config.model.attention_dropout = 0.2;
       config.training.moe_expert_capacity_factor = 1;
     }},
    {"what experts read dropped", [](TrainerConfig& config) { config.training.moe_zero_memory = "level0"; }},
    {"experts recomputed", [](TrainerConfig& config) { config.training.moe_layer_recompute = true; }},
    {"a layer recomputed",
     [](TrainerConfig& config) {
       config.training.recompute_granularity = "full";
       config.training.recompute_method = "block";
       config.training.recompute_num_layers = 1;
     }},
    {"two ranks that share layers, and experts",
     [](TrainerConfig& config) {
       config.parallel.tensor_model_parallel_size = 2;
       config.parallel.sequence_parallel = true;
     }},
    {"two ranks that share layers",
     [](TrainerConfig& config) {
       config.parallel.tensor_model_parallel_size = 2;
       config.parallel.sequence_parallel = true;
       config.parallel.expert_tensor_parallel_size = 1;
     }},
};

// Of two replicas, which share the experts.
TrainerConfig config_with_experts(const test::TemporaryFolder& folder, std::string_view schedule) {
  test::TinyLayout layout{1, kStages, 2};
  if (schedule == "one stage") {
    layout.pp = 1;
  } else if (schedule == "virtual stages") {
    layout.vpp = 2;
  } else {
    layout.schedule = schedule;
  }
  TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.model.num_layers = kLayers;
  config.model.num_experts = 4;
  config.model.moe_router_topk = 2;
  config.model.moe_ffn_hidden_size = 24;
  config.parallel.expert_model_parallel_size = 2;
  config.parallel.shared_memory = false;
  config.parallel.moe_fb_overlap = true;
  config.training.moe_aux_loss_coeff = {0.02};
  config.training.global_batch_size = 2 * kMicrobatches;
  return config;
}

TEST(ExpertInterleaving, ChangesNoBit) {
  for (const std::string_view schedule : {"dualpipev", "virtual stages", "dualpipev detached", "one stage"}) {
    for (const Case& of : kCases) {
      if (schedule != "virtual stages" && &of > kCases + (schedule == "dualpipev" ? 3 : 0)) continue;
      SCOPED_TRACE(core::cat(schedule, ", ", of.name));
      const test::TemporaryFolder folder;
      TrainerConfig config = config_with_experts(folder, schedule);
      of.change(config);
      const int ranks = 2 * config.parallel.pipeline_model_parallel_size * config.parallel.tensor_model_parallel_size;
      layout::ScheduleSettings settings = config.schedule_settings();
      ASSERT_TRUE(settings.pairs);
      settings.pairs = false;
      const Bits apart = bits_of_steps(config, ranks, settings);
      settings.pairs = true;
      EXPECT_TRUE(apart == bits_of_steps(config, ranks, settings));
      if (&of > kCases + 3) continue;
      settings.delays_weights_of_pairs = true;
      EXPECT_TRUE(apart == bits_of_steps(config, ranks, settings)) << "weights delayed";
    }
  }
}

}  // namespace
}  // namespace ms::train
