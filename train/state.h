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

// Where a run stands, besides its tensors.
struct Progress {
  int64_t iteration = 0;  // steps done, skipped ones among them
  int64_t consumed_train_samples = 0;
  int64_t skipped_train_samples = 0;  // of them, by --iterations-to-skip
  int64_t optimizer_steps = 0;        // updates applied: AdamW's step
  int64_t scheduler_samples = 0;      // samples of those updates: where learning rate and weight decay stand
};

struct StateBox {
  core::ShardedTensor meta;
  std::byte* data = nullptr;  // dense, row-major, meta.local_shape of meta.dtype; owned by the buffers
};

// Elements of the parameters' buffers, as Parameter::offset_elems counts them.
struct ElementRange {
  int64_t begin = 0, end = 0;
};

// The boxes of this rank; of what is the same on all data-parallel ranks those in `alike`. with_optimizer: master
// weights and moments too.
std::vector<StateBox> state_boxes(const RankState& state, const ParameterStore& parameters, const Optimizer& optimizer,
                                  bool with_optimizer, ElementRange alike);

// Which boxes a checkpoint takes of a rank: the share that it writes for all, or all that it needs to go on alone.
enum class RankPart { kShare, kAll };

// What RankPart::kAll saves, and load_state wants.
std::vector<core::ShardedTensor> all_shards(const RankState& state, const ParameterStore& parameters,
                                            const Optimizer& optimizer);

// What a save takes of this rank, in the order of its boxes. What it reads there is joined by make_save_request.
std::vector<ckpt::ShardData> shards_to_save(const RankState& state, const ParameterStore& parameters,
                                            const Optimizer& optimizer, RankPart part);

// What is saved at this point, until optimizer.split_master() or the next update. model_extra: what the loaded
// checkpoint said of the model beyond its shape (a Hugging Face config.json, say), carried on. common: what else a
// continued run wants, beside the progress.
ckpt::SaveRequest make_save_request(const RankState& state, const ParameterStore& parameters, Optimizer& optimizer,
                                    const Progress& progress, const nlohmann::json& model_extra, nlohmann::json common,
                                    RankPart part);

// Fills the buffers of this rank from a checkpoint of any layout, or (kAll) of this rank's part alone (ckpt/local.h).
// Master weights come from the checkpoint's if it has them (an fp32 checkpoint holds them as parameters).
// with_optimizer: moments too; else they stay zero. Returns where the run stands. Throws kCorruptData if a tensor is
// missing or differs in shape; kInvalidArgument if the checkpoint has no optimizer state but it is wanted. Without the
// optimizer's state its steps, and with them learning rate and weight decay, begin anew, as in Megatron. stopped: as
// load_shards' (ckpt/execute.h).
Progress load_state(const RankState& state, ParameterStore& parameters, Optimizer& optimizer, ckpt::Source& source,
                    RankPart part, bool with_optimizer, const std::function<bool()>& stopped);

}  // namespace ms::train
