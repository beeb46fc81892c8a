// Weights of data-parallel replicas: equal ones pass, one changed bit names rank and parameter on all ranks.
#include "train/loop/weight_hash.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/comm/agree.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "train/rank_state.h"

namespace ms::train {
namespace {

// What each rank throws after `change` has been applied to its weights; empty: nothing.
template <class Change>
std::vector<std::string> errors_after(const test::TinyLayout& layout, const Change& change) {
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.model.vocab_size = 257;
  config.training.train_iters = 1;
  config.training.global_batch_size = 12;
  config.resolve_and_validate(layout.ranks());
  std::vector<std::string> errors(static_cast<size_t>(layout.ranks()));
  test::run_thread_ranks(layout.ranks(), [&](core::Endpoint& endpoint) {
    core::ThreadPool pool(1);
    core::Arena arena;
    ops::Context context{pool, arena, nullptr};
    ProcessGroups groups(endpoint, config.grid(layout.ranks()));
    RankState state{config, groups, context};
    ParameterStore parameters(state);
    parameters.initialize(1, [](const Parameter&, const core::TensorView&) {});
    change(endpoint.rank(), parameters);
    try {
      check_weight_hashes(parameters, groups);
    } catch (const core::AgreedError& e) {
      EXPECT_EQ(e.code(), core::ErrorCode::kInternal);
      errors[static_cast<size_t>(endpoint.rank())] = e.what();
    }
  });
  return errors;
}

void flip_bit(ParameterStore& parameters, std::string_view key) {
  std::byte* const last = parameters.at(key).weight.bytes() + parameters.at(key).weight.size_bytes() - 1;
  *last ^= std::byte{1};
}

TEST(WeightHash, EqualReplicasPass) {
  for (const std::string& error : errors_after({.tp = 2, .dp = 2}, [](int, ParameterStore&) {})) EXPECT_EQ(error, "");
}

TEST(WeightHash, OneBitNamesRankAndParameterOnAllRanks) {
  constexpr const char* kKey = "decoder.layers.2.mlp.linear_fc2.weight";
  for (const int culprit : {0, 2}) {
    const auto errors = errors_after({.dp = 3}, [&](int rank, ParameterStore& parameters) {
      if (rank == culprit) flip_bit(parameters, kKey);
    });
    for (const std::string& error : errors) {
      EXPECT_EQ(error, errors[0]);
      EXPECT_NE(error.find(core::cat(kKey, ": rank [", culprit, "] differs from ranks [")), std::string::npos) << error;
    }
  }
}

TEST(WeightHash, RanksOfOtherReplicasEndToo) {
  const auto errors = errors_after({.tp = 2, .dp = 2}, [](int rank, ParameterStore& parameters) {
    if (rank == 3) flip_bit(parameters, "embedding.word_embeddings.weight");
  });
  for (const std::string& error : errors) EXPECT_NE(error.find("word_embeddings"), std::string::npos) << error;
}

}  // namespace
}  // namespace ms::train
