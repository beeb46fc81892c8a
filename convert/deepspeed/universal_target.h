// Writes a universal checkpoint of DeepSpeed, which its engine loads under any ZeRO stage and any number of ranks.
//
//   ROOT/latest_universal                                                 the tag, moved last
//   ROOT/global_stepN_universal/zero/NAME/{fp32,exp_avg,exp_avg_sq,step}.pt
//   ROOT/global_stepN_universal/zero/optimizer_state.pt                   Adam's settings
//   ROOT/global_stepN_universal/mp_rank_00_model_states.pt                weights that are not fp32; counters
//   ROOT/global_stepN_universal/zero_pp_rank_0_mp_rank_00_model_states.pt the same without weights, for ZeRO 3
//
// Source: the readers in deepspeed/runtime/base_optimizer.py (load_hp_checkpoint_state_from_checkpoint_dir),
// deepspeed/runtime/zero/stage3.py (load_hp_checkpoint_state_from_checkpoint_dir_stage3) and
// deepspeed/runtime/engine.py (_load_checkpoint).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/sink.h"
#include "ckpt/source.h"
#include "convert/placed_result.h"
#include "core/io/json.h"

namespace ms::convert {

struct UniversalTargetOptions {
  std::string root;
  nlohmann::json config;  // config.json, stored in the root; determines the names of the weights
  bool with_optimizer = false;
  WriteOptions writing;
};

struct UniversalTarget {
  ckpt::ShardTable shards;
  std::unique_ptr<ckpt::Sink> sink;
};

// dtype: of a canonical parameter's weights. Appends to `decisions` what is not simply copied. Throws kInvalidArgument
// if the iteration exists, kUnsupported for optimizer state that is not Adam's, or does not cover all parameters.
UniversalTarget make_universal_target(const ckpt::Source& source, const UniversalTargetOptions& options,
                                      const std::function<core::DType(const std::string& key)>& dtype,
                                      std::vector<std::string>& decisions);

}  // namespace ms::convert
