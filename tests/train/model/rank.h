// One rank of the tiny model of tests/support/tiny_run.h without a trainer, for tests of the parts of a model.
#pragma once

#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "train/model/parameters.h"
#include "train/rank_state.h"

namespace ms::train {

struct Rank {
  Rank(core::Endpoint& endpoint, const TrainerConfig& given) : config(given) {
    config.model.vocab_size = 257;  // the size of the tiny data set's tokenizer
    config.training.train_iters = 1;
    config.resolve_and_validate(endpoint.size());
    groups.emplace(endpoint, config.grid(endpoint.size()));
    state.emplace(RankState{config, *groups, ops});
    parameters.emplace(*state);
  }

  TrainerConfig config;
  core::Arena arena;
  core::ThreadPool pool{1};
  ops::Context ops{pool, arena};
  std::optional<train::ProcessGroups> groups;
  std::optional<RankState> state;
  std::optional<ParameterStore> parameters;
};

}  // namespace ms::train
