// The groups of a rank, made from the grid and passed where they are needed (Megatron's ProcessGroupCollection).
#pragma once

#include <optional>

#include "core/comm/communicator.h"
#include "core/comm/rank_grid.h"

namespace ms::core {

// Context numbers (Communicator) of all groups of a run, here so that no two share one.
enum GroupContext : int {
  kWorldContext,
  kTpContext,
  kPpContext,
  kDpCpContext,
  kModelContext,
  kCheckpointContext,
  kEmbeddingContext,
  // Of all ranks, beside ProcessGroups: what the configuration, the start and the local checkpoints agree on, and the
  // start of --benchmark.
  kConfigurationContext = 1000,
  kStartContext,
  kLocalCheckpointContext,
  kBenchmarkContext,
};

struct ProcessGroups {
  // Local: no message is sent. endpoint must outlive the groups; its size must be the grid's.
  ProcessGroups(Endpoint& endpoint, const RankGrid& grid);

  RankGrid grid;
  RankGrid::Coordinates at;  // of this rank
  Communicator world;
  Communicator tp;                        // tensor-model-parallel
  Communicator pp;                        // pipeline stages, first to last
  Communicator dp_cp;                     // gradient reduction (features.md G2)
  Communicator model;                     // tp x pp: one whole model
  Communicator checkpoint;                // all ranks, for the saver alone: nothing of it on training groups
  std::optional<Communicator> embedding;  // first and last stage, where the weight may be shared (pp > 1)

  bool is_first_stage() const { return at.pp == 0; }
  bool is_last_stage() const { return at.pp == grid.pp - 1; }
};

}  // namespace ms::core
