#include "train/features/context_parallel.h"

#include <algorithm>
#include <iterator>

#include "core/layout/adaptive_plan.h"
#include "core/layout/mask_clusters.h"
#include "train/config.h"
#include "train/features/check.h"
#include "train/features/packed_documents.h"

namespace ms::train {
namespace {

using layout::ContextAlgorithm;

constexpr const char* kSize = "--context-parallel-size";

struct AlgorithmNames {
  ContextAlgorithm algorithm;
  const char* of_mindspeed;
  const char* of_megatron;  // null: it has none
};
constexpr AlgorithmNames kAlgorithms[] = {{ContextAlgorithm::kUlysses, "ulysses_cp_algo", "a2a"},
                                          {ContextAlgorithm::kKvAllgather, "kvallgather_cp_algo", "all_gather"},
                                          {ContextAlgorithm::kRing, "megatron_cp_algo", "p2p"},
                                          {ContextAlgorithm::kHybrid, "hybrid_cp_algo", "a2a+p2p"},
                                          {ContextAlgorithm::kAdaptive, "adaptive_cp_algo", nullptr},
                                          {ContextAlgorithm::kHybridAdaptive, "hybrid_adaptive_cp_algo", nullptr}};

template <class Name>
const AlgorithmNames* find_algorithm(Name name, const std::string& text) {
  const auto found = std::ranges::find_if(
      kAlgorithms, [&](const AlgorithmNames& names) { return names.*name != nullptr && text == names.*name; });
  return found == std::end(kAlgorithms) ? nullptr : found;
}
const AlgorithmNames* find_type(const std::string& type) { return find_algorithm(&AlgorithmNames::of_megatron, type); }

ContextAlgorithm algorithm_of(const AlgorithmNames* found) {
  return found == nullptr ? ContextAlgorithm::kUlysses : found->algorithm;  // an invalid one is refused
}

const AlgorithmNames& names_of(ContextAlgorithm algorithm) {
  return *std::ranges::find(kAlgorithms, algorithm, &AlgorithmNames::algorithm);
}

// Whether the user has named algorithms as Megatron does.
bool names_types(const ContextParallelConfig& config) {
  return config.context_parallel_algo.empty() && !config.cp_comm_type.empty();
}
// As the user would name it; --cp-comm-type has no adaptive ones.
const char* name_of(const ContextParallelConfig& config, ContextAlgorithm algorithm) {
  const AlgorithmNames& names = names_of(algorithm);
  return names_types(config) ? names.of_megatron : names.of_mindspeed;
}

bool has_several_types(const ContextParallelConfig& config) {
  const std::vector<std::string>& types = config.cp_comm_type;
  return std::ranges::any_of(types, [&](const std::string& type) { return type != types.front(); });
}

// Whether any layer of a valid configuration is of it.
bool has_layers_of(const ContextParallelConfig& config, ContextAlgorithm algorithm) {
  const std::vector<ContextAlgorithm> algorithms = context_algorithms_of_layers(config);
  if (algorithms.empty()) return context_algorithm(config) == algorithm;
  return std::ranges::find(algorithms, algorithm) != algorithms.end();
}

bool shares_sequences(const TrainerConfig& config) { return config.parallel.context_parallel_size > 1; }
bool has_layers_of(const TrainerConfig& config, ContextAlgorithm algorithm) {
  return shares_sequences(config) && has_layers_of(config.parallel, algorithm);
}
bool leaves_queries(const TrainerConfig& config) {
  return shares_sequences(config) && layout::is_zigzag(context_algorithm(config.parallel));
}
bool plans_blocks(const TrainerConfig& config) {
  return shares_sequences(config) && layout::is_adaptive(context_algorithm(config.parallel));
}
bool is_hybrid(const TrainerConfig& config) {
  return has_layers_of(config, ContextAlgorithm::kHybrid) || has_layers_of(config, ContextAlgorithm::kHybridAdaptive);
}
bool exchanges_heads(const TrainerConfig& config) {
  return is_hybrid(config) || has_layers_of(config, ContextAlgorithm::kUlysses);
}
bool is_ring(ContextAlgorithm algorithm) {
  return algorithm == ContextAlgorithm::kHybrid || algorithm == ContextAlgorithm::kRing;
}
bool has_ring(const TrainerConfig& config) {
  return has_layers_of(config, ContextAlgorithm::kHybrid) || has_layers_of(config, ContextAlgorithm::kRing);
}
bool has_kv_cache(const TrainerConfig& config) { return !config.parallel.context_parallel_kv_cache_policy.empty(); }
// Whether any layer of a valid configuration has a ring and is one that the policy is of.
bool keeps_blocks(const TrainerConfig& config) {
  const layout::KvCache cache = kv_cache(config.parallel);
  for (int64_t layer = 0; layer < config.model.num_layers; ++layer) {
    if (is_ring(context_algorithm_of_layer(config.parallel, layer)) &&
        cache.of_layer(layer) != layout::KvCachePolicy::kNone)
      return true;
  }
  return false;
}

// Of neighbours that exchange heads, as whichever flag has been given says; 0: none.
int64_t ulysses_degree(const ContextParallelConfig& config) {
  const std::vector<int64_t>& sizes = config.hierarchical_context_parallel_sizes;
  return config.ulysses_degree_in_cp != 0 || sizes.empty() ? config.ulysses_degree_in_cp : sizes.front();
}

bool gives_degree(const ContextParallelConfig& config) { return config.ulysses_degree_in_cp != 0; }

// "--hierarchical-context-parallel-sizes 4 2".
std::string sizes_text(const ContextParallelConfig& config) {
  std::string text = "--hierarchical-context-parallel-sizes";
  for (const int64_t size : config.hierarchical_context_parallel_sizes) text += core::cat(" ", size);
  return text;
}

void check_algorithm(const ContextParallelConfig& parallel, int64_t layers) {
  const bool is_used = parallel.context_parallel_size > 1;
  const std::string& algorithm = parallel.context_parallel_algo;
  require_one_of("--context-parallel-algo", algorithm,
                 {"", "ulysses_cp_algo", "kvallgather_cp_algo", "megatron_cp_algo", "hybrid_cp_algo",
                  "adaptive_cp_algo", "hybrid_adaptive_cp_algo"});
  const std::vector<std::string>& types = parallel.cp_comm_type;
  for (const std::string& type : types) {
    require_one_of("--cp-comm-type", type, {"a2a", "all_gather", "p2p", "a2a+p2p"});
  }
  require(types.size() < 2 || static_cast<int64_t>(types.size()) == layers, "--cp-comm-type has ", types.size(),
          " entries, expected one, or one for each of --num-layers ", layers);
  if (!is_used || algorithm.empty() || types.empty()) return;
  const char* same = names_of(context_algorithm(parallel)).of_megatron;
  require(same != nullptr, "--context-parallel-algo ", algorithm,
          " and --cp-comm-type exclude each other: Megatron has no such algorithm, nor do layers of others divide "
          "sequences as it does; leave --cp-comm-type out");
  for (const std::string& type : types) {
    require(type == same, "--context-parallel-algo ", algorithm, " and --cp-comm-type ", type,
            " exclude each other: the same would be ", same);
  }
}

ContextAlgorithm hybrid_algorithm(const ContextParallelConfig& config) {
  const bool is_adaptive = context_algorithm(config) == ContextAlgorithm::kHybridAdaptive;
  return is_adaptive ? ContextAlgorithm::kHybridAdaptive : ContextAlgorithm::kHybrid;
}

// Of hybrid_cp_algo and hybrid_adaptive_cp_algo: who exchanges heads.
void check_hybrid(const ContextParallelConfig& parallel) {
  const int cp = parallel.context_parallel_size;
  const std::vector<int64_t>& sizes = parallel.hierarchical_context_parallel_sizes;
  const int64_t degree = ulysses_degree(parallel);
  const auto is_size = [&](int64_t size) { return size > 0 && size <= cp; };
  const bool is_megatrons = names_types(parallel);
  require(gives_degree(parallel) || !sizes.empty(), is_megatrons ? "--cp-comm-type " : "--context-parallel-algo ",
          name_of(parallel, hybrid_algorithm(parallel)), " needs ",
          is_megatrons ? "--hierarchical-context-parallel-sizes, or --ulysses-degree-in-cp"
                       : "--ulysses-degree-in-cp, or --hierarchical-context-parallel-sizes");
  require(sizes.empty() || (sizes.size() == 2 && is_size(sizes[0]) && is_size(sizes[1]) && sizes[0] * sizes[1] == cp),
          sizes_text(parallel), ": expected two sizes whose product is ", kSize, " ", cp);
  require(degree > 0 && degree < cp && cp % degree == 0,
          gives_degree(parallel) ? core::cat("--ulysses-degree-in-cp ", degree, ": expected")
                                 : core::cat(sizes_text(parallel), ": expected as the first size"),
          " a divisor of ", kSize, " ", cp, ", below it");
  require(sizes.empty() || sizes[0] == degree, "--ulysses-degree-in-cp ", degree, " and ", sizes_text(parallel),
          " exclude each other: the same would be ", degree, " and ", cp / degree);
}

void check_window(const TrainerConfig& config) {
  const int window = config.parallel.cp_window_size, cp = config.parallel.context_parallel_size;
  if (window == 1 || !has_ring(config)) return;
  const int ring = is_hybrid(config) ? cp / context_parts(config.parallel).ulysses : cp;
  require(
      !is_hybrid(config) || !has_layers_of(config, ContextAlgorithm::kRing), "--cp-window-size ", window,
      " and --cp-comm-type with both p2p and a2a+p2p exclude each other: the windows of their rings are of different "
      "ranks");
  require(window < ring && ring % window == 0, "--cp-window-size ", window, ": expected a divisor of the ", ring,
          " ranks of a ring, below it");
}

// Of ranks that exchange heads.
void check_heads(const TrainerConfig& config) {
  const int cp = config.parallel.context_parallel_size, tp = config.parallel.tensor_model_parallel_size;
  const bool all_exchange = has_layers_of(config, ContextAlgorithm::kUlysses);
  const int ranks = all_exchange ? cp : context_parts(config.parallel).ulysses;
  const ContextAlgorithm algorithm = all_exchange ? ContextAlgorithm::kUlysses : hybrid_algorithm(config.parallel);
  const std::string flag = all_exchange ? core::cat(kSize, " ", ranks)
                           : gives_degree(config.parallel)
                               ? core::cat("--ulysses-degree-in-cp ", ranks)
                               : core::cat(ranks, " (the first of ", sizes_text(config.parallel), ")");
  const auto name = [&](ContextAlgorithm of) { return name_of(config.parallel, of); };
  require(config.model.num_attention_heads % (int64_t{tp} * ranks) == 0, "--num-attention-heads ",
          config.model.num_attention_heads, " is not a multiple of ", flag,
          tp > 1 ? core::cat(" x --tensor-model-parallel-size ", tp) : "", ", over which ", name(algorithm),
          " distributes them; ", name(ContextAlgorithm::kKvAllgather), " and ", name(ContextAlgorithm::kRing),
          " do not");
  const int64_t groups = config.model.query_groups();
  require(!config.parallel.use_ulysses_allgather_kv || (!config.model.multi_latent_attention && groups <= tp),
          "--use-ulysses-allgather-kv gathers one head of keys and values on a rank: --num-query-groups ", groups,
          " must be at most --tensor-model-parallel-size ", tp);
}

// Which layers of a ring keep what.
void check_kv_cache(const TrainerConfig& config) {
  const ContextParallelConfig& parallel = config.parallel;
  const int64_t layers = config.model.num_layers;
  require_one_of("--context-parallel-kv-cache-policy", parallel.context_parallel_kv_cache_policy, {"", "full", "half"});
  const int64_t interval = parallel.context_parallel_cache_interval;
  require(interval >= 0 && (interval == 0 || interval < layers), "--context-parallel-cache-interval ", interval,
          ": expected 0 or more, below --num-layers ", layers);
  require(!has_kv_cache(config) || !has_ring(config) || keeps_blocks(config), "--context-parallel-cache-interval ",
          interval, ": --cp-comm-type makes none of the layers that keep blocks with it p2p or a2a+p2p; give 0");
}

void check_context_parallel(const TrainerConfig& config, int) {
  check_algorithm(config.parallel, config.model.num_layers);
  check_kv_cache(config);
  require(config.parallel.cp_window_size > 0, "--cp-window-size ", config.parallel.cp_window_size, ": at least 1");
  const int cp = config.parallel.context_parallel_size;
  if (cp == 1) return;
  if (is_hybrid(config)) check_hybrid(config.parallel);
  check_window(config);
  const int parts = layout::SequenceShare::parts(context_algorithm(config.parallel), cp);
  require(config.training.seq_length % parts == 0, kSize, " ", cp, ": --seq-length ", config.training.seq_length,
          " is not a multiple of ", parts, parts > cp ? ", twice as many" : "");
  if (exchanges_heads(config)) check_heads(config);
}

// A hybrid algorithm in which no ranks exchange heads.
std::vector<std::string> notices_of_context_parallel(const TrainerConfig& config) {
  if (!is_hybrid(config) || context_parts(config.parallel).ulysses > 1) return {};
  const ContextAlgorithm rest = plans_blocks(config) ? ContextAlgorithm::kAdaptive : ContextAlgorithm::kRing;
  return {core::cat(gives_degree(config.parallel) ? "--ulysses-degree-in-cp 1" : sizes_text(config.parallel),
                    ": one rank exchanges no heads: ", name_of(config.parallel, hybrid_algorithm(config.parallel)),
                    " is ", name_of(config.parallel, rest))};
}

// What takes every rank for one that has whole sequences.
std::vector<Rule> rules_of_context_parallel() {
  constexpr const char* kNotYet = ", which is not supported yet";
  const auto refused = [&](const char* other, Condition holds) {
    return excludes(kSize, shares_sequences, other, holds, kNotYet);
  };
  const auto refused_by_adaptive = [&](const char* other, Condition holds, const char* why) {
    return excludes("--context-parallel-algo adaptive_cp_algo or hybrid_adaptive_cp_algo", plans_blocks, other, holds,
                    why);
  };
  constexpr const char* kScattered =
      ": keys of a block do not stand at positions that follow one another; megatron_cp_algo and kvallgather_cp_algo "
      "do it";
  return {
      needs(
          "--context-parallel-cache-interval above 0",
          [](const TrainerConfig& c) { return c.parallel.context_parallel_cache_interval > 0; },
          "--context-parallel-kv-cache-policy", has_kv_cache),
      needs(
          "--use-ulysses-allgather-kv", [](const TrainerConfig& c) { return c.parallel.use_ulysses_allgather_kv; },
          "--group-query-attention", [](const TrainerConfig& c) { return c.model.group_query_attention; }),
      excludes(
          "--context-parallel-kv-cache-policy", has_kv_cache,
          "--recompute-mla-up-proj or --recompute-modules mla_up_proj",
          [](const TrainerConfig& c) { return c.recompute_plan().has_latent_module(); },
          ": one keeps the keys of all ranks, the other not even a rank's own"),
      refused("--automated-pipeline or --automated-pipeline-perf",
              [](const TrainerConfig& c) { return c.parallel.automated_pipeline; }),
      excludes(
          "--context-parallel-algo kvallgather_cp_algo, megatron_cp_algo or hybrid_cp_algo", leaves_queries,
          "--no-use-flash-attn or --optimization-level 0",
          [](const TrainerConfig& c) { return !c.training.uses_flash_attn(); }, kNotYet),
      refused_by_adaptive(
          "--no-use-flash-attn or --optimization-level 0",
          [](const TrainerConfig& c) { return !c.training.uses_flash_attn(); }, kNotYet),
      refused_by_adaptive(
          "--sliding-window or --interleave-sliding-window",
          [](const TrainerConfig& c) { return c.model.sliding_window > 0 || c.model.interleave_sliding_window > 0; },
          kScattered),
      refused_by_adaptive(
          "--position-embedding-type alibi", [](const TrainerConfig& c) { return c.model.has_alibi(); }, kScattered),
      refused_by_adaptive(
          "--attention-dropout above 0", [](const TrainerConfig& c) { return c.model.attention_dropout > 0; },
          kScattered),
  };
}

}  // namespace

ContextAlgorithm context_algorithm(const ContextParallelConfig& config) {
  if (!config.context_parallel_algo.empty())
    return algorithm_of(find_algorithm(&AlgorithmNames::of_mindspeed, config.context_parallel_algo));
  if (has_several_types(config)) return ContextAlgorithm::kRing;
  return config.cp_comm_type.empty() ? ContextAlgorithm::kUlysses
                                     : algorithm_of(find_type(config.cp_comm_type.front()));
}

ContextAlgorithm context_algorithm_of_layer(const ContextParallelConfig& config, int64_t layer) {
  const std::vector<std::string>& types = config.cp_comm_type;
  if (types.size() < 2) return context_algorithm(config);
  return algorithm_of(find_type(types[static_cast<size_t>(std::min(layer, static_cast<int64_t>(types.size()) - 1))]));
}

std::vector<ContextAlgorithm> context_algorithms_of_layers(const ContextParallelConfig& config) {
  std::vector<ContextAlgorithm> algorithms;
  if (!has_several_types(config)) return algorithms;
  for (const std::string& type : config.cp_comm_type) algorithms.push_back(algorithm_of(find_type(type)));
  return algorithms;
}

layout::ContextParts context_parts(const ContextParallelConfig& config) {
  const auto divisor = [](int whole, int64_t part) {
    return part > 0 && part <= whole && whole % part == 0 ? static_cast<int>(part) : 1;
  };
  const int ranks = std::max(1, config.context_parallel_size), degree = divisor(ranks, ulysses_degree(config));
  const ContextAlgorithm algorithm =
      has_layers_of(config, ContextAlgorithm::kHybrid) ? ContextAlgorithm::kHybrid : context_algorithm(config);
  const bool is_hybrid = algorithm == ContextAlgorithm::kHybrid || algorithm == ContextAlgorithm::kHybridAdaptive;
  return layout::context_parts(algorithm, ranks, degree,
                               divisor(is_hybrid ? ranks / degree : ranks, config.cp_window_size));
}

layout::ContextParts context_parts_of_layer(const ContextParallelConfig& config, int64_t layer) {
  const layout::ContextParts groups = context_parts(config);
  return layout::context_parts(context_algorithm_of_layer(config, layer), std::max(1, config.context_parallel_size),
                               groups.ulysses, groups.window);
}

layout::KvCache kv_cache(const ContextParallelConfig& config) {
  using enum layout::KvCachePolicy;
  const std::string& policy = config.context_parallel_kv_cache_policy;
  return {.policy = policy == "full"   ? kFull
                    : policy == "half" ? kHalf
                                       : kNone,
          .interval = config.context_parallel_cache_interval};
}

layout::SequenceShare sequence_share(const ContextParallelConfig& config, int64_t seq_length, int cp_rank,
                                     std::span<const int64_t> document_ends, const layout::SampleMask& mask) {
  const ContextAlgorithm algorithm = context_algorithm(config);
  const layout::ContextParts parts = context_parts(config);
  if (config.context_parallel_size == 1 || !layout::is_adaptive(algorithm))
    return {algorithm, seq_length, config.context_parallel_size, cp_rank};
  if (mask.plan) return {mask.plan, cp_rank, parts.ulysses};
  const auto order =
      config.adaptive_cp_only_reschedule ? layout::PositionOrder::kOfSequence : layout::PositionOrder::kOfClusters;
  return {layout::plan_documents(seq_length, parts.ring, document_ends, order, mask.prefix), cp_rank, parts.ulysses};
}

layout::SequenceShare share_of_rank(const ContextParallelConfig& config, const layout::SequenceShare& own,
                                    int cp_rank) {
  if (own.plan()) return {own.plan(), cp_rank, context_parts(config).ulysses};
  return sequence_share(config, own.seq_length(), cp_rank);
}

std::vector<layout::Segment> rotary_positions(const TrainerConfig& config, int cp_rank) {
  if (!config.generate.generate.empty()) return {{0, config.model.max_position_embeddings}};
  const ModelParallelConfig& parallel = config.parallel;
  const bool differs = plans_blocks(config) || parallel.variable_seq_lengths || keeps_documents_apart(config);
  const int64_t seq_length = config.training.seq_length;
  if (!shares_sequences(config) || differs) return {{0, seq_length}};
  const layout::SequenceShare share = sequence_share(parallel, seq_length, cp_rank);
  return {share.segments().begin(), share.segments().end()};
}

int64_t num_rotary_positions(const TrainerConfig& config) {
  int64_t count = 0;
  for (const layout::Segment& segment : rotary_positions(config, 0)) count += segment.count;
  return count;
}

std::string cluster_fingerprint(const ContextParallelConfig& config) {
  const bool plans = config.context_parallel_size > 1 && layout::is_adaptive(context_algorithm(config));
  return plans && !config.adaptive_cp_only_reschedule ? core::cat(layout::cluster_fingerprint()) : "";
}

int64_t sequence_multiple(const ModelParallelConfig& parallel) {
  const int64_t tp = parallel.sequence_parallel ? parallel.tensor_model_parallel_size : 1;
  return tp * layout::SequenceShare::parts(context_algorithm(parallel), parallel.context_parallel_size);
}

Feature context_parallel_feature() {
  return {
      .name = "context-parallel",
      .level = 0,
      .effect = "Divides each sequence over CP ranks: activations shrink by CP, for exchanges in each attention",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<ContextParallelConfig>("parallel", config.parallel); },
      .is_active = shares_sequences,
      .rules = rules_of_context_parallel(),
      .ineffective =
          {{[](const TrainerConfig& c) {
              return !shares_sequences(c) &&
                     (!c.parallel.context_parallel_algo.empty() || !c.parallel.cp_comm_type.empty());
            },
            "--context-parallel-algo and --cp-comm-type have no effect with --context-parallel-size 1: "
            "nobody shares a sequence"},
           {[](const TrainerConfig& c) { return ulysses_degree(c.parallel) != 0 && !is_hybrid(c); },
            "--ulysses-degree-in-cp and --hierarchical-context-parallel-sizes have no effect without "
            "--context-parallel-algo hybrid_cp_algo or hybrid_adaptive_cp_algo and several ranks"},
           {[](const TrainerConfig& c) {
              return (c.parallel.cp_window_size > 1 || !c.parallel.use_cp_send_recv_overlap) && !has_ring(c);
            },
            "--cp-window-size and --no-use-cp-send-recv-overlap have no effect where ranks form no ring"},
           {[](const TrainerConfig& c) { return has_kv_cache(c) && !has_ring(c); },
            "--context-parallel-kv-cache-policy has no effect where ranks form no ring"},
           {[](const TrainerConfig& c) { return c.parallel.use_ulysses_allgather_kv && !exchanges_heads(c); },
            "--use-ulysses-allgather-kv has no effect where ranks exchange no heads"},
           {[](const TrainerConfig& c) { return c.parallel.adaptive_cp_only_reschedule && !plans_blocks(c); },
            "--adaptive-cp-only-reschedule has no effect without --context-parallel-algo adaptive_cp_algo or "
            "hybrid_adaptive_cp_algo and several ranks"}},
      .check = check_context_parallel,
      .notices = notices_of_context_parallel,
  };
}

}  // namespace ms::train
