// Context parallelism: ranks share each sequence. They hold the same weights, so that gradients are reduced over them
// and the data-parallel ranks together (the group dp_cp), but read the same samples, of which each takes its rows.
// Source: MindSpeed's --context-parallel-algo; Megatron's --cp-comm-type (megatron/core/transformer/attention.py).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/layout/context_parallel.h"
#include "core/layout/mask_grid.h"
#include "train/features/feature.h"

namespace ms::train {

struct ModelParallelConfig;
struct TrainerConfig;

struct ContextParallelConfig {
  int context_parallel_size = 1;
  std::string context_parallel_algo;
  std::vector<std::string> cp_comm_type;
  int ulysses_degree_in_cp = 0;  // 0: not given
  std::vector<int64_t> hierarchical_context_parallel_sizes;
  int cp_window_size = 1;
  bool use_cp_send_recv_overlap = true;
  std::string context_parallel_kv_cache_policy;
  int64_t context_parallel_cache_interval = 0;
  bool use_ulysses_allgather_kv = false;
  bool adaptive_cp_only_reschedule = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = ContextParallelConfig;
    field("context_parallel_size", &C::context_parallel_size, "Ranks that share each sequence");
    field("context_parallel_algo", &C::context_parallel_algo,
          "How they attend: ulysses_cp_algo: an all-to-all gives each rank the whole sequence on a part of the heads; "
          "kvallgather_cp_algo: keys and values are gathered; megatron_cp_algo: they travel around a ring; "
          "hybrid_cp_algo: neighbours exchange heads, and a ring connects them with the others; adaptive_cp_algo: they "
          "travel only where a score needs them, for packed documents; hybrid_adaptive_cp_algo: neighbours exchange "
          "heads, and the rest is as with adaptive_cp_algo. Default: ulysses_cp_algo, or what --cp-comm-type says");
    field("cp_comm_type", &C::cp_comm_type,
          "Megatron's name for --context-parallel-algo: a2a, all_gather, p2p or a2a+p2p; one value, or one for each "
          "layer, such as a2a where a window is short and p2p elsewhere. Where they differ, each rank has a part from "
          "the "
          "front of a sequence and one from the back, in all layers");
    field("ulysses_degree_in_cp", &C::ulysses_degree_in_cp,
          "With hybrid_cp_algo and hybrid_adaptive_cp_algo: neighbours that exchange heads, a divisor of "
          "--context-parallel-size below it; best the ranks of a machine");
    field("hierarchical_context_parallel_sizes", &C::hierarchical_context_parallel_sizes,
          "Megatron's name for --ulysses-degree-in-cp, with --cp-comm-type a2a+p2p: ranks that exchange heads, and "
          "ranks of a ring");
    field("cp_window_size", &C::cp_window_size,
          "Neighbours of a ring that pass keys and values around among themselves, while those of the next such window "
          "are on their way: for rings over several machines. 1: one ring");
    field("use_cp_send_recv_overlap", &C::use_cp_send_recv_overlap,
          "Keys and values of a ring are on their way while others are attended (MindSpeed: off by default)");
    field("context_parallel_kv_cache_policy", &C::context_parallel_kv_cache_policy,
          "What a ring keeps of the blocks that it receives in forward, so that backward need not send it again: "
          "full: keys and values, which leaves 2/3 of all bytes; half: keys, 5/6. Worth it on slow links, where memory "
          "is left");
    field("context_parallel_cache_interval", &C::context_parallel_cache_interval,
          "Apply --context-parallel-kv-cache-policy to one of every N + 1 layers. 0: to all");
    field("use_ulysses_allgather_kv", &C::use_ulysses_allgather_kv,
          "With ulysses_cp_algo or hybrid_cp_algo and one key-value head on each rank: gather keys and values, and "
          "exchange only queries and outputs; fewer bytes than copies of that head");
    field(
        "adaptive_cp_only_reschedule", &C::adaptive_cp_only_reschedule,
        "With adaptive_cp_algo or hybrid_adaptive_cp_algo: each rank has consecutive positions; plan only which blocks "
        "travel, without the search for clusters of the mask");
  }
};

// Of all layers, or kRing where --cp-comm-type has several: ranks have its share of a sequence in all layers.
layout::ContextAlgorithm context_algorithm(const ContextParallelConfig& config);
// Of a layer (global index); those of multi-token prediction are as the last one.
layout::ContextAlgorithm context_algorithm_of_layer(const ContextParallelConfig& config, int64_t layer);
// Of each layer, where --cp-comm-type has several; else empty.
std::vector<layout::ContextAlgorithm> context_algorithms_of_layers(const ContextParallelConfig& config);

// What the rings of a valid configuration keep.
layout::KvCache kv_cache(const ContextParallelConfig& config);

// Of the groups of a valid configuration, and those whose sizes do not divide as one ring or exchange of heads; and of
// a layer (global index), which has these parts or all ranks as one.
layout::ContextParts context_parts(const ContextParallelConfig& config);
layout::ContextParts context_parts_of_layer(const ContextParallelConfig& config, int64_t layer);

// What number cp_rank of the ranks that share it has of a sequence, or of the samples of a micro-batch. document_ends,
// as ops::AttentionParams has them, and mask: adaptive algorithms plan with them, others give all samples the same.
layout::SequenceShare sequence_share(const ContextParallelConfig& config, int64_t seq_length, int cp_rank,
                                     std::span<const int64_t> document_ends = {}, const layout::SampleMask& mask = {});

// What number cp_rank has where this rank, one of those that share the sequence, has `own`.
layout::SequenceShare share_of_rank(const ContextParallelConfig& config, const layout::SequenceShare& own, int cp_rank);

// The positions for which number cp_rank of the ranks that share sequences keeps cosines and sines: those of its share
// where all micro-batches are divided alike, else all of a sequence, or of the longest text to generate.
std::vector<layout::Segment> rotary_positions(const TrainerConfig& config, int cp_rank);
int64_t num_rotary_positions(const TrainerConfig& config);  // how many, the same on every rank

// What plans depend on beside their masks, which ranks of a run compare; empty where clusters are not searched.
std::string cluster_fingerprint(const ContextParallelConfig& config);

// Lengths of which every rank can have its part of a sequence, by context and by sequence parallelism: multiples of it.
int64_t sequence_multiple(const ModelParallelConfig& parallel);

Feature context_parallel_feature();

}  // namespace ms::train
