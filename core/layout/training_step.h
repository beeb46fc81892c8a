// A training step as far as its communication, FLOPs and memory depend on it. What formulas/ computes from it is what a
// run counts: tests/train/plan_test.cpp compares both.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/layout/buffer_cut.h"
#include "core/layout/context_parallel.h"
#include "core/layout/expert_overlap.h"
#include "core/layout/gradient_buckets.h"
#include "core/layout/mask_grid.h"
#include "core/layout/model_layout.h"
#include "core/layout/recompute_plan.h"
#include "core/layout/schedule.h"
#include "core/layout/swap_plan.h"
#include "core/layout/tensor_overlap.h"
#include "core/sharded_tensor.h"
#include "core/transformer_config.h"

namespace ms::layout {

struct TrainingStep {
  core::TransformerConfig model;  // resolved
  ModelLayout layout;             // valid for the model
  bool sequence_parallel = false;
  TensorOverlap tensor_overlap;
  core::DType dtype = core::DType::kFp32;                           // of weights and activations
  int64_t micro_batch_size = 1;                                     // samples
  int64_t seq_length = 0;                                           // tokens
  ContextAlgorithm context_algorithm = ContextAlgorithm::kUlysses;  // of ranks that share a sequence
  // Of the groups of these ranks. A layer has the same parts, or all ranks as one: context_parts_of().
  ContextParts context_parts;
  // Of each layer, where they are not all alike: any but adaptive ones; else empty. Then context_algorithm is kRing,
  // whose share of a sequence ranks have in all layers.
  std::vector<ContextAlgorithm> context_algorithms;
  KvCache kv_cache;  // of rings
  // Where samples have as many ranks as their length needs (context_degree), most tokens of one on a rank; 0: all
  // samples have CP ranks. Formulas are then of samples of seq_length on CP ranks.
  int64_t max_seqlen_per_dp_cp_rank = 0;
  bool gathers_keys_of_heads = false;  // where heads are exchanged: keys and values are gathered instead
  SampleMask mask;                     // of all samples
  int64_t rotary_positions = 0;        // of which a rank has cosines and sines
  int64_t threads = 1;                 // of a rank
  int64_t num_microbatches = 1;        // of one replica
  ScheduleSettings schedule;
  bool posts_receives_early = true;       // with chunks: a hidden state more
  int64_t deferred_output_gradients = 0;  // last micro-batches whose gradient of the output layer waits for the end
  int64_t loss_chunk_size = 0;            // positions whose logits exist at once; 0: all
  bool mtp_logits_are_brief = false;      // --mtp-mem-efficient-logits
  RecomputePlan recompute;
  SwapPlan swap;
  bool reuse_fp32_param = false;  // --reuse-fp32-param: 2 bytes of master weights
  // What the optimizer keeps of each parameter that trains besides master weights: an fp32 number each.
  std::vector<core::TensorRole> optimizer_state = {core::TensorRole::kExpAvg, core::TensorRole::kExpAvgSq};
  BucketSettings buckets;
  core::DType reduction_dtype = core::DType::kFp32;  // of gradients between data-parallel ranks
  bool overlaps_param_gather = false;                // a gather for each bucket
  std::vector<std::string> frozen_parameters;        // keys, sorted: without gradients and optimizer state
  bool counts_zeros = false;                         // --log-num-zeros-in-grad: one more reduction
  bool logs_params_norm = false;                     // --log-params-norm: the same
  // Of layers with experts on several ranks. Data decide how many tokens each expert has: formulas take it that all
  // have the same, which --fix-router makes true.
  bool has_own_lengths = false;           // samples; what ranks gather of tokens then differs
  bool gathers_tokens = false;            // --moe-token-dispatcher-type allgather; else all-to-all
  bool exchanges_hierarchically = false;  // --moe-hierarchical-alltoallv
  int64_t expert_groups = 1;              // --moe-experts-pipeline-degree: exchanges of rows, of as many parts of them
  ExpertOverlap expert_overlap;
  bool has_balance_losses = false;       // auxiliary losses, whose counts are summed over TP and CP
  bool has_global_balance_loss = false;  // one of the step's tokens, whose counts are summed over DP, too
  // What the choice of experts reads of all tokens of a micro-batch, gathered over TP: their logits (sinkhorn), and the
  // choices of all (a capacity).
  bool gathers_logits = false, gathers_choices = false;
  bool adapts_recompute = false;      // to the load of experts, on which TP agrees
  int64_t expert_placement_freq = 0;  // steps from one move of experts to the next; 0: none moves

  // With the ranks that share a query group, and the parts of those that share a sequence, which the layout does not
  // know.
  RankGrid grid() const {
    RankGrid grid = layout.grid();
    grid.cp_window = context_parts.window;
    grid.cp_ring = context_parts.ring;
    grid.query_parts = query_parts(model, grid.tp);
    grid.chooses_cp = max_seqlen_per_dp_cp_rank > 0;
    return grid;
  }
  // Of a layer (global index); those of multi-token prediction are as the last one.
  ContextAlgorithm context_algorithm_of(int64_t layer) const {
    if (context_algorithms.empty()) return context_algorithm;
    return context_algorithms[static_cast<size_t>(std::min(layer, model.num_layers - 1))];
  }
  // Of the layers of an algorithm.
  ContextParts context_parts_of(ContextAlgorithm algorithm) const {
    return layout::context_parts(algorithm, layout.context_parallel_size, context_parts.ulysses, context_parts.window);
  }
  // Of a layer; kNone where it has no ring.
  KvCachePolicy kv_cache_of(int64_t layer) const;
  // Of adaptive context parallelism: that of samples without documents.
  std::shared_ptr<const AdaptivePlan> adaptive_plan() const;
  int64_t rows() const { return seq_length / layout.context_parallel_size; }  // positions of a sample on a rank
  int64_t tokens() const { return micro_batch_size * rows(); }                // of a micro-batch on a rank
  // What linear_qkv gives for all heads of a query group.
  int64_t query_group_bytes() const {
    return tokens() * model.qkv_rows() / model.query_groups() * core::size_of(dtype);
  }
  // Of the products of a layer of tensor parallelism (TensorOverlap).
  int64_t product_parts() const {
    if (layout.tensor_model_parallel_size == 1) return 1;
    return tensor_overlap.product_parts(sequence_parallel ? rows() / layout.tensor_model_parallel_size : rows(),
                                        micro_batch_size);
  }
  bool multiplies_own_first() const {
    const int tp = layout.tensor_model_parallel_size;
    return sequence_parallel && tp > 1 && tensor_overlap.multiplies_own_first(rows() / tp, micro_batch_size);
  }
};

// What a stage holds, as far as traffic and memory depend on it. Elements are of one tensor-parallel rank.
struct StageParameters {
  BufferCut cut;                            // of the buffer of parameters that train
  int64_t buffer_elems = 0;                 // of that buffer, padded
  int64_t frozen_elems = 0;                 // of that of the others, padded too
  std::vector<FlatRange> buckets;           // of the former (gradient_buckets.h)
  std::vector<int64_t> partial_grad_elems;  // in each bucket, of parameters of whose gradient each TP rank has a part
  int64_t model_buffer_elems = 0;           // fp32, which no optimizer changes: biases of routers
  int64_t embedding_elems = 0;              // of the word embedding, if the stage holds it and it trains
  // A tied embedding, or one that multi-token prediction reads, on the stage that also has the output layer: gradients
  // of the rows that a step reads (at most) are added up apart, so that the order of the sums does not depend on the
  // pipeline.
  int64_t tied_row_elems = 0;
};
StageParameters stage_parameters(const TrainingStep& step, int stage);
// Of a tied embedding on two stages, elements of the gradient that a rank adds up with the other stage's: all of them,
// from ZeRO-2 on its block of the unit.
int64_t shared_embedding_elems(const StageParameters& stage);

bool is_frozen(const TrainingStep& step, const std::string& key);
// Whether the weight of a linear layer is: "self_attention.linear_qkv" of a layer (global index), and the output
// layer's.
bool is_frozen(const TrainingStep& step, int64_t layer, const char* linear);
bool output_is_frozen(const TrainingStep& step);

// Whether each tensor-parallel rank has a part of the gradient of a replicated parameter: with sequence parallelism
// always, else of the norms of heads, which are split over the ranks.
bool grad_is_partial(const ParameterSpec& spec, int tp_size, bool sequence_parallel);

}  // namespace ms::layout
