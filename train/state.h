// The training state of a rank as a checkpoint sees it: which boxes of which global tensors are at which address.
//
// Of state that data-parallel ranks hold alike, each writes an equal share, or rank 0 writes all of it
// (--no-ckpt-fully-parallel-save, --ckpt-gather). Ranges of the distributed optimizer are written, or sent, by their
// owners. In an fp32 run the weights are the master weights and are written once, as parameters.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "ckpt/execute.h"
#include "ckpt/writer.h"
#include "train/model/parameters.h"
#include "train/optim/optimizer.h"

namespace ms::train {

// The progress of a run, in addition to its tensors.
struct Progress {
  int64_t iteration = 0;  // completed steps, including skipped ones
  int64_t consumed_train_samples = 0;
  int64_t skipped_train_samples = 0;  // samples of --iterations-to-skip
  int64_t optimizer_steps = 0;        // applied updates: the optimizer's step
  int64_t scheduler_samples = 0;      // samples of the applied updates: determines learning rate and weight decay
};

struct StateBox {
  core::ShardedTensor meta;
  // Dense, row-major, meta.local_shape of meta.dtype; owned by the buffers. Null: state that --swap-optimizer has on
  // its tier now.
  std::byte* data = nullptr;
};

// Which boxes of a rank a checkpoint contains: the share that it writes for all ranks, or all that it needs to continue
// alone.
enum class RankPart { kShare, kAll };

// The boxes of this rank. with_optimizer: includes master weights and what else the optimizer keeps (Optimizer::state).
std::vector<StateBox> state_boxes(const RankState& state, const ParameterStore& parameters, const Optimizer& optimizer,
                                  bool with_optimizer, RankPart part);

// The shards that RankPart::kAll saves and load_state requires.
std::vector<core::ShardedTensor> all_shards(const RankState& state, const ParameterStore& parameters,
                                            const Optimizer& optimizer);

// The shards that a save takes from this rank, in the order of its boxes. With --reuse-fp32-param and --swap-optimizer
// their state is valid only after make_save_request.
std::vector<ckpt::ShardData> shards_to_save(const RankState& state, const ParameterStore& parameters,
                                            const Optimizer& optimizer, RankPart part);

// Gradients of the parameters, NAME:grad, between Optimizer::finish_gradients and the update: the share of them that
// this rank writes for all. They are those of the mean loss, times the loss scale.
std::vector<ckpt::ShardData> gradient_shards(const RankState& state, const ParameterStore& parameters);

// The request for a save of the current state, valid until optimizer.release_state() or the next update. model_extra:
// what the loaded checkpoint said about the model besides its shape (such as a Hugging Face config.json); it is saved
// again. common: other state that a resumed run needs, in addition to the progress.
ckpt::SaveRequest make_save_request(const RankState& state, const ParameterStore& parameters, Optimizer& optimizer,
                                    const Progress& progress, const nlohmann::json& model_extra, nlohmann::json common,
                                    RankPart part);

// Fills the buffers of this rank from a checkpoint of any layout, or (kAll) from this rank's own part (ckpt/local.h).
// Master weights are loaded if the checkpoint has them (an fp32 checkpoint stores them as parameters). with_optimizer:
// loads what else the optimizer keeps, too; otherwise it stays zero. Returns the progress of the run. Without the
// optimizer's state its step count restarts, and with it learning rate and weight decay, as in Megatron. stopped: as in
// load_shards (ckpt/execute.h). Throws kCorruptData if a tensor is missing or differs in shape; kInvalidArgument if the
// optimizer state is requested but missing, also if of single parameters, which were frozen then. State that the
// optimizer does not continue from is dropped with a warning.
Progress load_state(const RankState& state, ParameterStore& parameters, Optimizer& optimizer, ckpt::Source& source,
                    RankPart part, bool with_optimizer, const std::function<bool()>& stopped);

}  // namespace ms::train
