// A layer of experts on several ranks against the same layer on one rank, which moe_layer_test.cpp compares with its
// definition: results, and gradients of tokens and of all weights once they are reduced. Of what ranks exchange, each
// direction and the weights of the rows are in one of these numbers.
#include "train/model/token_dispatcher.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "core/layout/slot_policy.h"
#include "core/layout/tensor_cut.h"
#include "tests/support/random_values.h"
#include "tests/train/model/rank.h"
#include "train/model/moe_layer.h"
#include "train/model/routing_statistics.h"
#include "train/optim/bucket.h"

namespace ms::train {
namespace {

constexpr int64_t kSeq = 8, kBatch = 2, kLayer = 1, kHidden = 16;
const std::string kPrefix = "decoder.layers.1.";

struct Layout {
  int tp, dp, ep, etp;
  int ranks() const { return tp * dp; }
  std::string name() const { return core::cat("tp", tp, "_dp", dp, "_ep", ep, "_etp", etp); }
};
const Layout kLayouts[] = {{1, 2, 2, 1}, {1, 4, 2, 1}, {1, 4, 4, 1}, {2, 1, 1, 2}, {2, 1, 1, 1}, {2, 1, 2, 1},
                           {2, 2, 2, 2}, {2, 2, 4, 1}, {2, 2, 2, 1}, {4, 1, 2, 2}, {1, 4, 2, 2}, {1, 2, 1, 2}};
const Layout kGroups[] = {{1, 2, 2, 1}, {2, 1, 1, 2}, {2, 2, 2, 2}, {2, 2, 4, 1}};  // with several experts on a rank
const Layout kBlocks[] = {{2, 2, 4, 1}, {2, 4, 8, 1}, {4, 2, 8, 1}};  // of experts: --moe-hierarchical-alltoallv

struct Case {
  const char* name;
  void (*change)(TrainerConfig&);
};
const Case kCases[] = {
    {"chosen", [](TrainerConfig&) {}},
    {"losses_shared_gate",
     [](TrainerConfig& c) {
       c.model.moe_shared_expert_intermediate_size = 8;
       c.model.moe_shared_expert_gate = true;
       c.training.moe_router_load_balancing_type = {std::string(kAuxLoss), std::string(kSeqAuxLoss)};
       c.training.moe_aux_loss_coeff = {0.5, 0.7};
       c.training.moe_z_loss_coeff = 0.1;
     }},
    {"most_experts_idle",
     [](TrainerConfig& c) {
       c.model.num_experts = 32;
       c.model.moe_router_topk = 1;
       c.model.moe_router_pre_softmax = true;
     }},
    {"dropped", [](TrainerConfig& c) { c.training.moe_expert_capacity_factor = 0.7; }},
    {"dropped_by_position",
     [](TrainerConfig& c) {
       c.training.moe_expert_capacity_factor = 0.7;
       c.training.moe_token_drop_policy = "position";
     }},
    {"sinkhorn_jitter",
     [](TrainerConfig& c) {
       c.training.moe_router_load_balancing_type = {std::string(kSinkhorn)};
       c.training.moe_input_jitter_eps = 0.3;
     }},
    {"loss_of_what_groups_leave",
     [](TrainerConfig& c) {
       c.training.moe_router_load_balancing_type = {std::string(kGroupLimited)};
       c.training.moe_aux_loss_coeff = {0.5};
       c.model.moe_router_num_groups = 4;
       c.model.moe_router_group_topk = 2;
     }},
    {"random_logits_overlapped",
     [](TrainerConfig& c) {
       c.training.moe_router_force_load_balancing = true;
       c.model.moe_shared_expert_intermediate_size = 8;
       const bool gathers = c.parallel.moe_token_dispatcher_type == "allgather";
       (gathers ? c.parallel.moe_allgather_overlap_comm : c.parallel.moe_alltoall_overlap_comm) = true;
     }},
    {"refilled", [](TrainerConfig& c) { c.training.recompute_norm = c.training.recompute_activation_function = true; }},
};

TrainerConfig config_of(const std::filesystem::path& folder, const Case& one, const Layout& layout,
                        const std::string& dispatcher) {
  TrainerConfig config = test::tiny_config(folder, {layout.tp, 1, layout.dp, false, layout.tp > 1});
  config.training.seq_length = kSeq;
  config.model.num_layers = 2;
  config.model.hidden_size = kHidden;
  config.model.num_attention_heads = config.model.num_query_groups = 4;
  config.model.num_experts = 8;
  config.model.moe_ffn_hidden_size = 12;
  config.model.moe_router_topk = 3;
  config.model.init_method_std = 0.4;
  config.parallel.expert_model_parallel_size = layout.ep;
  config.parallel.expert_tensor_parallel_size = layout.etp;
  test::set_dispatcher(config, dispatcher, layout.ep, layout.tp);
  config.parallel.shared_memory = false;
  one.change(config);
  return config;
}

struct Result {
  std::vector<std::vector<float>> y, dx;            // of each replica, [seq, batch, hidden]
  std::map<std::string, std::vector<float>> grads;  // of each parameter of the layer, of all replicas
  LayerLoad load;                                   // of all ranks
};

// The values of this rank's part of the sequence of a replica.
std::vector<float> values_of(int dp, uint64_t salt, int tp, int tp_rank) {
  const auto all = test::RandomValues(10 * static_cast<uint64_t>(dp) + salt).make<float>(kSeq * kBatch * kHidden, 1);
  const size_t part = all.size() / static_cast<size_t>(tp), begin = part * static_cast<size_t>(tp_rank);
  return {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(begin + part)};
}

core::Tensor tensor_of(core::Arena& arena, const std::vector<float>& values) {
  core::Tensor x(arena, core::DType::kFp32, {static_cast<int64_t>(values.size()) / (kBatch * kHidden), kBatch, kHidden},
                 core::MemoryTag::kTmp);
  std::ranges::copy(values, x.data<float>());
  return x;
}

void put(std::vector<float>& whole, const core::TensorView& part, int tp_rank) {
  whole.resize(kSeq * kBatch * kHidden);
  std::ranges::copy(part.elements<float>(), whole.begin() + tp_rank * part.size());
}

// One rank's share of a result.
void run_rank(Rank& rank, const std::vector<int>& replicas, Result& result, std::mutex& mutex) {
  const int tp = rank.state->tp_size(), tp_rank = rank.state->tp_rank();
  Buckets buckets(*rank.state, *rank.parameters);
  rank.parameters->initialize(5, [](const Parameter&, const core::TensorView&) {});
  RoutingStatistics statistics;
  rank.state->routing = &statistics;
  MoeLayer layer(*rank.state, *rank.parameters, kLayer);
  const layout::LayerSlots slots = layout::layer_slots(rank.config.recompute_plan(), {}, kLayer, /*has_experts=*/true);
  const std::vector<int64_t> samples = {0, 1};
  const SequenceContext sequence{.samples = samples, .auxiliary_scale = 3};
  rank.parameters->zero_grads();
  for (const int replica : replicas) {
    const core::Tensor x = tensor_of(rank.arena, values_of(replica, 1, tp, tp_rank));
    core::Tensor dy = tensor_of(rank.arena, values_of(replica, 2, tp, tp_rank));
    FeedForwardActivations saved;
    const core::Tensor y = layer.forward(x, saved, slots, &x.view(), sequence);
    if (rank.config.training.recompute_norm) {
      saved = {};
      layer.refill(x, saved, slots, sequence);
    }
    WeightGradients weights;
    const core::Tensor dx = layer.backward(dy, x, saved, dy, sequence, weights);
    const std::lock_guard lock(mutex);
    put(result.y[static_cast<size_t>(replica)], y, tp_rank);
    put(result.dx[static_cast<size_t>(replica)], dx, tp_rank);
  }
  buckets.finish_reduction();
  const std::lock_guard lock(mutex);
  result.load += statistics.layers().at(kLayer);
  for (const Parameter& parameter : rank.parameters->all()) {
    if (!parameter.spec.key.starts_with(kPrefix + "mlp") && !parameter.spec.key.starts_with(kPrefix + "pre_mlp"))
      continue;
    std::vector<float>& whole = result.grads[parameter.spec.key];
    whole.resize(static_cast<size_t>(core::num_elements(parameter.spec.global_shape)));
    const int64_t columns = parameter.spec.global_shape.back();
    const float* own = parameter.main_grad.data<float>();
    for (const layout::Box& box : layout::boxes_of_local_range(parameter.spec, rank.config.model, parameter.cut.size,
                                                               parameter.cut.rank, 0, parameter.size())) {
      const bool is_vector = box.extent.size() == 1;
      const int64_t rows = is_vector ? 1 : box.extent[0], width = box.extent.back();
      for (int64_t row = 0; row < rows; ++row, own += width) {
        const int64_t begin = is_vector ? box.offset[0] : (box.offset[0] + row) * columns + box.offset[1];
        std::copy(own, own + width, whole.begin() + begin);
      }
    }
  }
}

Result run(const Case& one, const Layout& layout, const std::string& dispatcher, int replicas) {
  const test::TemporaryFolder folder;
  const TrainerConfig config = config_of(folder.path(), one, layout, dispatcher);
  Result result;
  result.y.resize(static_cast<size_t>(replicas));
  result.dx.resize(static_cast<size_t>(replicas));
  std::mutex mutex;
  test::run_thread_ranks(layout.ranks(), [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    std::vector<int> own = {rank.groups->at.dp};
    for (int replica = 1; replica < replicas && layout.dp == 1; ++replica) own.push_back(replica);
    run_rank(rank, own, result, mutex);
  });
  return result;
}

void expect_near(const std::vector<float>& seen, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(seen.size(), want.size()) << what;
  double distance = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    distance += std::pow(double{seen[i]} - want[i], 2);
    size += std::pow(double{want[i]}, 2);
  }
  EXPECT_LE(std::sqrt(distance), 1e-5 * std::sqrt(size)) << what;
}

void expect_what_one_rank_computes(const Case& one, const Layout& layout, const std::string& dispatcher) {
  const Result want = run(one, {1, 1, 1, 1}, "alltoall", layout.dp), seen = run(one, layout, dispatcher, layout.dp);
  for (size_t replica = 0; replica < want.y.size(); ++replica) {
    expect_near(seen.y[replica], want.y[replica], core::cat("y of replica ", replica));
    expect_near(seen.dx[replica], want.dx[replica], core::cat("gradient of x of replica ", replica));
  }
  ASSERT_EQ(seen.grads.size(), want.grads.size());
  for (const auto& [name, grads] : want.grads) expect_near(seen.grads.at(name), grads, name);
  EXPECT_EQ(seen.load.tokens, want.load.tokens);
  EXPECT_EQ(seen.load.received, layout.etp * want.load.received) << "each row that is sent is received";
  EXPECT_EQ(seen.load.received + layout.etp * seen.load.dropped,
            layout.etp * layout.dp * kSeq * kBatch * (one.name == std::string("most_experts_idle") ? 1 : 3));
  EXPECT_EQ(seen.load.dropped, want.load.dropped);
  EXPECT_EQ(seen.load.microbatches, want.load.microbatches);
  EXPECT_NEAR(seen.load.losses.aux, want.load.losses.aux, 1e-6 * want.load.losses.aux);
  EXPECT_NEAR(seen.load.losses.seq_aux, want.load.losses.seq_aux, 1e-6 * want.load.losses.seq_aux);
  EXPECT_NEAR(seen.load.losses.z, want.load.losses.z, 1e-6 * want.load.losses.z);
}

class Dispatchers : public testing::TestWithParam<std::tuple<size_t, size_t, const char*>> {};

TEST_P(Dispatchers, GiveWhatOneRankComputes) {
  const auto& [number, row, dispatcher] = GetParam();
  expect_what_one_rank_computes(kCases[number], kLayouts[row], dispatcher);
}

TEST(BlocksOfExperts, GiveWhatOneRankComputes) {
  for (const Case& one : kCases) {
    for (const Layout& layout : kBlocks) {
      SCOPED_TRACE(core::cat(one.name, ", ", layout.name()));
      expect_what_one_rank_computes(one, layout, "hierarchical");
    }
  }
}

// --moe-experts-pipeline-degree: each group of experts has exchanges of its own.
TEST(GroupsOfExperts, GiveWhatOneRankComputes) {
  for (const Case& one : kCases) {
    for (const Layout& layout : kGroups) {
      SCOPED_TRACE(core::cat(one.name, ", ", layout.name()));
      expect_what_one_rank_computes(one, layout, "groups");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, Dispatchers,
                         testing::Combine(testing::Range(size_t{0}, std::size(kCases)),
                                          testing::Range(size_t{0}, std::size(kLayouts)),
                                          testing::Values("alltoall", "allgather")),
                         [](const auto& test) {
                           return core::cat(kCases[std::get<0>(test.param)].name, "_",
                                            kLayouts[std::get<1>(test.param)].name(), "_", std::get<2>(test.param));
                         });

}  // namespace
}  // namespace ms::train
