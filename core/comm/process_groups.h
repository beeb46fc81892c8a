// The process groups of a rank, created from the grid and passed to where they are needed (Megatron's
// ProcessGroupCollection).
#pragma once

#include <optional>

#include "core/comm/communicator.h"
#include "core/comm/rank_grid.h"

namespace ms::core {

// Communicator context numbers of all groups in a run, listed here so that no two groups share one.
enum GroupContext : int {
  kWorldContext,
  kTpContext,
  kPpContext,
  kDpCpContext,
  kModelContext,
  kCheckpointContext,
  kEmbeddingContext,
  // Groups of all ranks outside ProcessGroups: agreement on the configuration, on the start and on local checkpoints,
  // and the start of --benchmark.
  kConfigurationContext = 1000,
  kStartContext,
  kLocalCheckpointContext,
  kBenchmarkContext,
};

struct ProcessGroups {
  // Local: sends no message. endpoint must outlive the groups; its size must equal the grid's.
  ProcessGroups(Endpoint& endpoint, const RankGrid& grid);

  RankGrid grid;
  RankGrid::Coordinates at;  // of this rank
  Communicator world;
  Communicator tp;                        // tensor-model-parallel
  Communicator pp;                        // pipeline stages, first to last
  Communicator dp_cp;                     // ranks that reduce gradients together
  Communicator model;                     // tp x pp: one model replica
  Communicator checkpoint;                // all ranks, used by checkpoint saving only, apart from training traffic
  std::optional<Communicator> embedding;  // first and last stage, which may share the embedding weight (pp > 1)

  bool is_first_stage() const { return at.pp == 0; }
  bool is_last_stage() const { return at.pp == grid.pp - 1; }
};

}  // namespace ms::core
