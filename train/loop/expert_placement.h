// Moves experts between steps, so that the ranks of an expert-parallel group have the same load (MindSpeed's expert
// placement: planner.py and executor.py, mindspeed/core/transformer/moe/expert_placement).
//
// The load of an expert is a moving average of its tokens in a step, of all ranks: 0.9 of what it was, 0.1 of the new
// ones. Every --expert-placement-freq steps each layer's experts are packed onto the ranks by it
// (core/layout/expert_packing.h), and move (train/optim/expert_moves.h) if that makes the ranks' load more even. All
// ranks have the same loads, and decide alike without a message.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "train/loop/checkpoint_manager.h"
#include "train/loop/metrics.h"
#include "train/model/parameters.h"
#include "train/optim/expert_moves.h"
#include "train/optim/optimizer.h"
#include "train/rank_state.h"

namespace ms::train {

inline constexpr const char* kExpertPlacement = "expert_placement";  // of a checkpoint's common state

class ExpertPlacement {
 public:
  // Null if the run has no use for it. From now on `state` says where experts are. All of it must outlive the object.
  static std::unique_ptr<ExpertPlacement> open(RankState& state, ParameterStore& parameters, Optimizer& optimizer);

  // What a run continues with: where experts are, and their load. restore(): of a checkpoint's common state, before the
  // parameters are loaded; without it, or of another number of EP ranks, they begin in order. Throws kCorruptData.
  nlohmann::json saved() const;
  void restore(const nlohmann::json& common);

  // After a step's update, and before its state is saved. Collective, all ranks give the same.
  void after_step(const StepMetrics& step, CheckpointManager& checkpoints);

  struct Moves {
    int64_t experts = 0;  // of all layers
    MovedBytes bytes;     // of this rank
  };
  const Moves& last_moves() const { return last_; }

 private:
  struct Layer {
    std::vector<int32_t> to;       // where its experts are to be; empty: they stay
    double before = 0, after = 0;  // coefficients of variation of the ranks' load, the latter as predicted
  };

  ExpertPlacement(RankState& state, ParameterStore& parameters, Optimizer& optimizer);
  int ranks() const { return state_.groups.grid.ep; }
  void add_load(const ExpertLoads& loads);
  void print_load(const StepMetrics& step) const;
  Layer pack(int64_t layer) const;
  void move(int64_t iteration, CheckpointManager& checkpoints);
  std::string moves_text(int64_t layer, const Layer& packed) const;

  RankState& state_;
  ParameterStore& parameters_;
  Optimizer& optimizer_;
  std::map<int64_t, std::vector<int32_t>> slots_;  // of each layer with experts
  std::map<int64_t, std::vector<double>> load_;
  Moves last_;
};

}  // namespace ms::train
