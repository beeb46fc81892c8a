// Experts that move take all with them: every bit of weights, master weights and moments, under every stage of ZeRO,
// and as many bytes as the formula says.
#include "train/optim/expert_moves.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "core/layout/expert_packing.h"
#include "core/layout/formulas/expert_moves.h"
#include "tests/train/model/rank.h"

namespace ms::train {
namespace {

using layout::ExpertSlots;
using test::TinyLayout;

// Bits that tell whose they are: of a tensor, a role (0: weights) and an element of this rank's part of it.
uint32_t bits_of(const std::string& key, size_t role, int64_t element, int etp) {
  const auto name = static_cast<uint32_t>(std::hash<std::string>()(key));
  return (name ^ (static_cast<uint32_t>(role) * 0x9e3779b9U) ^ (static_cast<uint32_t>(etp) * 0x85ebca6bU)) +
         static_cast<uint32_t>(element) * 0xc2b2ae35U;
}

// Calls visit(address, bytes of an element, expected bits) for each element that this rank has of its experts.
void for_each_element(Rank& rank, const Optimizer& optimizer,
                      const std::function<void(std::byte*, size_t, uint32_t)>& visit) {
  const std::vector<OptimizerState> kept = optimizer.state();
  const ParameterStore& parameters = *rank.parameters;
  const int etp = rank.groups->at_experts.etp;
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.spec.expert < 0) continue;
    const std::string& key = parameter.spec.key;
    const auto item = static_cast<size_t>(core::size_of(parameter.weight.dtype()));
    const layout::FlatRange own = parameters.state_part(parameter);
    const int64_t first = own.begin - parameter.offset_elems;
    if (parameter.weight.defined()) {
      for (int64_t i = 0; i < parameter.size(); ++i)
        visit(parameter.weight.bytes() + static_cast<size_t>(i) * item, item, bits_of(key, 0, i, etp));
    } else if (own.begin < own.end) {
      std::byte* const weights = parameters.owned_weights(own).bytes();
      for (int64_t i = 0; i < own.end - own.begin; ++i)
        visit(weights + static_cast<size_t>(i) * item, item, bits_of(key, 0, first + i, etp));
    }
    if (!parameter.trains() || own.begin >= own.end) continue;
    const int64_t place = parameters.state_place(own).begin;
    for (const auto& [role, values] : kept) {
      for (int64_t i = 0; i < own.end - own.begin; ++i)
        visit(values.bytes() + (place + i) * 4, 4, bits_of(key, 1 + static_cast<size_t>(role), first + i, etp));
    }
  }
}

constexpr int kEach = 3;  // experts of a rank: the parts of two replicas end within one

struct Case {
  TinyLayout layout;
  int ep, etp;
  int instances = 1;
  void (*change)(TrainerConfig&) = [](TrainerConfig&) {};
};

TrainerConfig config_of(const std::filesystem::path& folder, const Case& row) {
  TrainerConfig config = test::tiny_config(folder, row.layout);
  config.model.num_layers = 2;
  config.model.num_experts = kEach * row.ep;
  config.model.moe_ffn_hidden_size = 20;
  config.model.moe_layer_freq = "([0,1])";
  config.parallel.expert_model_parallel_size = row.ep;
  config.parallel.expert_tensor_parallel_size = row.etp;
  config.parallel.num_distributed_optimizer_instances = row.instances;
  config.training.global_batch_size = 8;
  row.change(config);
  return config;
}

const Case kMoves[] = {
    {{1, 1, 2}, 2, 1},
    {{1, 1, 2, 1}, 2, 1},
    {{1, 1, 4}, 2, 1, 1, [](TrainerConfig& c) { c.training.bf16 = true; }},
    {{1, 1, 4, 1}, 2, 1},
    {{1, 1, 4, 1}, 4, 1, 1, [](TrainerConfig& c) { c.training.bf16 = true; }},
    {{1, 1, 8, 1}, 2, 1, 1, [](TrainerConfig& c) { c.training.bf16 = true; }},
    {{1, 1, 4, 2}, 2, 1},
    {{1, 1, 4, 3}, 2, 1, 1, [](TrainerConfig& c) { c.training.bf16 = true; }},
    {{1, 1, 8, 1}, 2, 1, 2},
    {{2, 1, 2, 1, true}, 2, 1},
    {{2, 1, 4, 1, true}, 2, 2},
    {{2, 1, 2, 3, true}, 2, 2},
    {{1, 2, 2, 1}, 2, 1},
    {{1, 1, 4, 1}, 2, 1, 1, [](TrainerConfig& c) { c.optimizer.optimizer = "sgd"; }},
    {{1, 1, 4, 1}, 2, 1, 1, [](TrainerConfig& c) { c.optimizer.freeze_parameters = "linear_fc1"; }},
    {{1, 1, 8, 1}, 2, 1, 1, [](TrainerConfig& c) { c.parallel.parallel_optimizer_threshold = 4; }},
};

TEST(ExpertMoves, EveryBitArrivesAndTheFormulaCountsThem) {
  const test::TemporaryFolder folder;
  for (const Case& row : kMoves) {
    SCOPED_TRACE(core::cat(row.layout.name(), ", EP ", row.ep, ", ETP ", row.etp, ", case ", &row - kMoves));
    const TrainerConfig config = config_of(folder.path(), row);
    test::run_thread_ranks(row.layout.ranks(), [&](core::Endpoint& endpoint) {
      Rank rank(endpoint, config);
      Optimizer optimizer(*rank.state, *rank.parameters);
      for_each_element(rank, optimizer,
                       [](std::byte* at, size_t item, uint32_t bits) { std::memcpy(at, &bits, item); });
      const ExpertSlots start = layout::slots_in_order(kEach * row.ep);
      // All leave; then some, within and between ranks; then back.
      ExpertSlots all = start;
      for (int32_t& slot : all) slot = (slot + kEach) % (kEach * row.ep);
      ExpertSlots some = all;
      std::swap(some.front(), some.back());
      std::swap(some[1], some[2]);
      const ExpertSlots* from = &start;
      const ExpertSlots* const targets[] = {&all, &some, &start};
      for (const ExpertSlots* const to : targets) {
        const MovedBytes moved = move_experts(*rank.state, *rank.parameters, optimizer, 1, *from, *to);
        int64_t wrong = 0, seen = 0;
        for_each_element(rank, optimizer, [&](const std::byte* at, size_t item, uint32_t bits) {
          wrong += std::memcmp(at, &bits, item) != 0 ? 1 : 0;
          ++seen;
        });
        EXPECT_EQ(wrong, 0) << "of " << seen << " on rank " << endpoint.rank();
        for (const Parameter& parameter : rank.parameters->all()) {
          EXPECT_EQ(rank.parameters->model()[parameter.model_index].key, parameter.spec.key);
          if (parameter.spec.expert < 0) continue;
          const int32_t slot = (*to)[static_cast<size_t>(parameter.spec.expert)];
          EXPECT_EQ(slot / kEach, rank.groups->at_experts.ep) << parameter.spec.key;
        }
        const layout::ExpertMoveBytes most =
            layout::largest_expert_move(rank.config.training_step(endpoint.size()), endpoint.rank());
        EXPECT_EQ(most.experts, seen > 0 ? kEach : 0);
        if (to == &all) {
          EXPECT_EQ(moved.received, most.received);
          EXPECT_EQ(moved.gathered, most.gathered);
          EXPECT_TRUE(seen == 0 || moved.received > 0);
        }
        EXPECT_LE(moved.received, most.received);
        EXPECT_LE(moved.gathered, most.gathered);
        from = to;
      }
    });
  }
}

}  // namespace
}  // namespace ms::train
