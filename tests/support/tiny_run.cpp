#include "tests/support/tiny_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <sstream>

#include "ckpt/commit.h"
#include "ckpt/execute.h"
#include "ckpt/reader.h"
#include "ckpt/tensor_diff.h"
#include "core/error.h"
#include "core/rng.h"
#include "tests/support/thread_comm.h"
#include "train/data/indexed_dataset.h"

namespace ms::test {

std::string TinyLayout::name() const {
  std::string name =
      core::cat("tp", tp, "_pp", pp, vpp > 1 ? core::cat("_vpp", vpp) : "", "_dp", dp, zero > 0 ? "_zero" : "",
                zero > 1 ? core::cat(zero) : "", sp ? "_sp" : "", schedule.empty() ? "" : "_", schedule,
                overlap.empty() ? "" : "_", overlap, cp > 1 ? core::cat("_cp", cp, "_", context) : "");
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == ' ' || c == '+'; }, '_');
  // "a2a,p2p" is not "a2a+p2p"
  for (size_t at = name.find(','); at != std::string::npos; at = name.find(',')) name.replace(at, 1, "_and_");
  return name;
}

namespace {

// Of "p2p,a2a".
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

}  // namespace

train::TrainerConfig tiny_config(const std::filesystem::path& folder, const TinyLayout& layout) {
  const std::string prefix = (folder / "tiny").string();
  if (!std::filesystem::exists(train::idx_path(prefix))) {
    train::IndexedDatasetBuilder builder(prefix, train::token_type_for_vocab(257));
    const core::Rng rng(3, "tiny text");
    uint64_t draw = 0;
    for (int document = 0; document < 40; ++document) {
      std::vector<int32_t> tokens;
      auto token = static_cast<int32_t>(rng.below(draw++, 256));
      for (int i = 0; i < 60; ++i) {  // mostly a fixed sequence, so that there is something to learn
        tokens.push_back(token);
        token = rng.below(draw++, 8) == 0 ? static_cast<int32_t>(rng.below(draw++, 256)) : (token * 5 + 7) % 256;
      }
      tokens.push_back(256);
      builder.add_document(tokens);
    }
    builder.finalize();
  }
  train::TrainerConfig config;
  config.parallel.tensor_model_parallel_size = layout.tp;
  config.parallel.pipeline_model_parallel_size = layout.pp;
  config.parallel.context_parallel_size = layout.cp;
  const std::string algorithm = layout.context.substr(0, layout.context.find(' '));
  const bool is_adaptive = algorithm.ends_with("adaptive");
  if (layout.cp > 1 && is_adaptive) config.parallel.context_parallel_algo = algorithm + "_cp_algo";
  if (layout.cp > 1 && !is_adaptive) config.parallel.cp_comm_type = words_of(algorithm);
  if (algorithm.find("a2a+p2p") != std::string::npos || algorithm == "hybrid_adaptive")
    config.parallel.ulysses_degree_in_cp = layout.context.ends_with(" u4") ? 4 : 2;
  const auto has = [&](const char* word) { return layout.context.find(word) != std::string::npos; };
  if (has(" w2")) config.parallel.cp_window_size = 2;
  if (has(" w4")) config.parallel.cp_window_size = 4;
  if (has(" half")) config.parallel.context_parallel_kv_cache_policy = "half";
  if (has(" full")) config.parallel.context_parallel_kv_cache_policy = "full";
  if (has(" i1")) config.parallel.context_parallel_cache_interval = 1;
  if (has(" i2")) config.parallel.context_parallel_cache_interval = 2;
  if (layout.vpp > 1) config.parallel.num_virtual_stages_per_pipeline_rank = layout.vpp;
  config.parallel.dualpipev_dw_detach = layout.schedule.ends_with(" detached");
  config.parallel.delay_wgrad_compute = layout.schedule.ends_with(" delayed");
  config.parallel.use_nanopipe = layout.schedule == "nanopipe";
  if (!config.parallel.use_nanopipe)
    config.parallel.schedules_method = layout.schedule.substr(0, layout.schedule.find(' '));
  config.parallel.use_distributed_optimizer = layout.zero > 0;
  config.parallel.use_megatron_fsdp = layout.zero > 1;
  if (layout.zero > 1)
    config.parallel.data_parallel_sharding_strategy = layout.zero == 2 ? "optim_grads" : "optim_grads_params";
  config.parallel.sequence_parallel = layout.sp;
  config.parallel.tp_comm_overlap = layout.overlap == "tp";
  config.parallel.use_ascend_mc2 = layout.overlap == "mc2";
  config.parallel.use_ascend_coc = layout.overlap.starts_with("coc");
  if (config.parallel.use_ascend_coc) config.parallel.coc_parallel_num = layout.overlap == "coc2" ? 2 : 4;
  set_layers(config, 4);
  config.model.hidden_size = 32;
  config.model.ffn_hidden_size = 64;
  config.model.num_attention_heads = 8;
  config.model.group_query_attention = true;
  config.model.num_query_groups = 4;
  config.model.kv_channels = 8;
  config.model.make_vocab_size_divisible_by = 16;
  config.model.normalization = "RMSNorm";
  config.model.position_embedding_type = "rope";
  config.model.swiglu = true;
  config.model.add_bias_linear = false;
  config.model.untie_embeddings_and_output_weights = true;
  config.model.hidden_dropout = 0;
  config.model.attention_dropout = 0;
  config.optimizer.lr = 3e-3;
  config.scheduler.lr_decay_style = "constant";
  config.training.seq_length = 16;
  config.training.global_batch_size = 4;
  config.training.eval_iters = 0;
  config.training.threads_per_rank = 1;
  config.data.data_path = {prefix};
  config.data.split = "100,0,0";
  config.logger.log_level = "warning";
  config.logger.peak_tflops = 0.1;
  return config;
}

void set_layers(train::TrainerConfig& config, int64_t layers) {
  config.model.num_layers = layers;
  std::vector<std::string>& types = config.parallel.cp_comm_type;
  if (types.size() < 2) return;
  const std::vector<std::string> turns = types;
  types.clear();
  for (size_t i = 0; i < static_cast<size_t>(layers); ++i) types.push_back(turns[i % turns.size()]);
}

void set_dispatcher(train::TrainerConfig& config, std::string_view dispatcher, int ep, int tp) {
  train::ModelParallelConfig& parallel = config.parallel;
  if (dispatcher == "hierarchical") {
    parallel.moe_hierarchical_alltoallv = parallel.moe_tp_extend_ep = true;
    parallel.expert_model_parallel_size = ep / tp;
    parallel.expert_tensor_parallel_size.reset();
  } else if (dispatcher == "groups") {
    parallel.moe_experts_pipeline_degree = 2;
  } else {
    parallel.moe_token_dispatcher_type = dispatcher;
  }
}

std::vector<train::RunSummary> run_all_on_threads(const train::TrainerConfig& config, int ranks,
                                                  const OpenSource& open_source) {
  std::vector<train::RunSummary> summaries(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, [&](core::Endpoint& endpoint) {
    core::ThreadPool pool(std::max(1, config.training.threads_per_rank));
    core::trace::Recorder recorder;
    train::TrainerServices services;
    services.open_source = open_source;
    if (!open_source) {
      services.open_source = [](const std::filesystem::path& path, int64_t iteration) {
        return ckpt::open_native(iteration > 0 ? path / ckpt::generation_name(iteration, 0) : path);
      };
    }
    train::Trainer trainer(config, endpoint, pool, &recorder, services);
    summaries[static_cast<size_t>(endpoint.rank())] = trainer.run();
  });
  return summaries;
}

std::vector<train::Microbatch> drawn_microbatches(size_t count, int32_t first_draw) {
  std::vector<train::Microbatch> batch(count);
  int32_t draw = first_draw;
  for (train::Microbatch& microbatch : batch) {
    microbatch.batch = 1, microbatch.seq = 16;
    for (int i = 0; i < 16; ++i) {
      microbatch.tokens.push_back(draw = draw * 37 % 257);
      microbatch.labels.push_back((draw * 53 + 1) % 257);
    }
    microbatch.loss_mask.assign(16, 1.0F);
    microbatch.samples = {0};
  }
  return batch;
}

train::RunSummary run_on_threads(const train::TrainerConfig& config, int ranks, const OpenSource& open_source) {
  return std::move(run_all_on_threads(config, ranks, open_source).front());
}

std::string first_apart(const train::TrainerConfig& a, int ranks_a, const train::TrainerConfig& b, int ranks_b,
                        double tolerance) {
  const TemporaryFolder folder;
  const auto dump = [&](train::TrainerConfig config, int ranks, const char* name) {
    config.training.train_iters = 1;
    config.checkpoint.save.clear();
    config.logger.save_tensors = {1};
    config.logger.save_tensors_dir = folder / name;
    run_on_threads(config, ranks);
    return ckpt::open_native(folder / name);
  };
  const auto first = dump(a, ranks_a, "a"), second = dump(b, ranks_b, "b");
  for (const ckpt::TensorDistance& tensor : ckpt::diff_tensors(*first, *second, {.tolerance = tolerance})) {
    if (!tensor.is_beyond() && !tensor.is_absent) continue;
    return core::cat("first apart: ", tensor.tensor, ", ",
                     tensor.fault.empty() ? core::cat("relative L2 ", tensor.relative_l2) : tensor.fault);
  }
  return "no tensor of the first step is apart";
}

std::map<std::string, std::vector<float>> read_tensors(const std::filesystem::path& checkpoint, core::TensorRole role) {
  const auto source = ckpt::open_native(checkpoint);
  std::map<std::string, std::vector<float>> tensors;
  std::vector<ckpt::ShardTarget> targets;
  for (const core::ShardedTensor& shard : source->shards()) {
    if (shard.role != role || tensors.count(shard.key) != 0) continue;
    auto& values = tensors[shard.key];
    values.resize(static_cast<size_t>(core::num_elements(shard.global_shape)));
    core::ShardedTensor whole = shard;
    whole.dtype = core::DType::kFp32;
    whole.global_offset.assign(whole.global_shape.size(), 0);
    whole.local_shape = whole.global_shape;
    whole.replica_id = 0;
    targets.push_back({whole, reinterpret_cast<std::byte*>(values.data())});
  }
  ckpt::load_shards(*source, targets);
  return tensors;
}

Outcome outcome_of(train::TrainerConfig config, int ranks, const std::filesystem::path& save) {
  config.checkpoint.save = save;
  Outcome outcome{run_on_threads(config, ranks), {}};
  outcome.weights = read_tensors(outcome.summary.checkpoint, core::TensorRole::kParam);
  return outcome;
}

double largest_distance(const std::map<std::string, std::vector<float>>& a,
                        const std::map<std::string, std::vector<float>>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (const auto& [name, values] : b) {
    const auto other = a.find(name);
    if (other == a.end() || other->second.size() != values.size()) return std::numeric_limits<double>::infinity();
    double difference = 0, norm = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double delta = static_cast<double>(other->second[i]) - values[i];
      difference += delta * delta;
      norm += static_cast<double>(values[i]) * values[i];
    }
    if (difference > 0) largest = std::max(largest, std::sqrt(difference / std::max(norm, 1e-30)));
  }
  return largest;
}

void expect_same_bits(const Outcome& seen, const Outcome& expected) {
  ASSERT_EQ(seen.summary.steps.size(), expected.summary.steps.size());
  for (size_t i = 0; i < expected.summary.steps.size(); ++i) {
    EXPECT_EQ(seen.summary.steps[i].loss, expected.summary.steps[i].loss) << "step " << i + 1;
    EXPECT_EQ(seen.summary.steps[i].grad_norm, expected.summary.steps[i].grad_norm) << "step " << i + 1;
  }
  EXPECT_EQ(largest_distance(seen.weights, expected.weights), 0);
}

void use_latent_attention(train::TrainerConfig& config) {
  core::TransformerConfig& model = config.model;
  model.multi_latent_attention = model.qk_layernorm = true;
  model.q_lora_rank = 24;
  model.kv_lora_rank = 20;
  model.qk_head_dim = 12;
  model.qk_pos_emb_head_dim = 8;
  model.v_head_dim = 10;
}

}  // namespace ms::test
