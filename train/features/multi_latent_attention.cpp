#include "train/features/multi_latent_attention.h"

#include <algorithm>

#include "train/config.h"

namespace ms::train {
namespace {

constexpr const char* kMla = "--multi-latent-attention";

bool is_latent(const TrainerConfig& config) { return config.model.multi_latent_attention; }
bool recomputes_up_projections(const TrainerConfig& config) {
  return config.training.recompute_mla_up_proj ||
         std::ranges::count(config.training.recompute_modules, "mla_up_proj") > 0;
}

// Before the model's own resolve, which drops them.
void note_dropped_sizes(TrainerConfig& config) {
  const core::TransformerConfig& model = config.model;
  if (!model.multi_latent_attention) return;
  config.training.drops_query_groups |= model.group_query_attention;
  config.training.drops_kv_channels |=
      model.kv_channels != 0 && model.qk_head_dim > 0 && model.kv_channels != model.qk_head_dim;
}

std::vector<std::string> notices_of_latent_attention(const TrainerConfig& config) {
  std::vector<std::string> notices;
  const auto tell = [&](bool given, const char* flag, const char* why) {
    if (given) notices.push_back(core::cat(flag, " has no effect with ", kMla, why));
  };
  tell(config.training.drops_query_groups, "--group-query-attention",
       ": each head has its own keys and values, from one vector (Megatron refuses both)");
  tell(config.training.drops_kv_channels, "--kv-channels",
       ": --qk-head-dim, --qk-pos-emb-head-dim and --v-head-dim say how large heads are, as in Megatron");
  return notices;
}

// Sizes that only latent attention has.
std::vector<Ineffective> sizes_of_latent_attention() {
  const auto without = [](const char* flag) { return core::cat(flag, " has no effect without ", kMla); };
  using C = const TrainerConfig&;
  return {
      {[](C c) { return !is_latent(c) && c.model.q_lora_rank != 0; }, without("--q-lora-rank")},
      {[](C c) { return !is_latent(c) && c.model.kv_lora_rank != 0; }, without("--kv-lora-rank")},
      {[](C c) { return !is_latent(c) && c.model.qk_head_dim != 0; }, without("--qk-head-dim")},
      {[](C c) { return !is_latent(c) && c.model.qk_pos_emb_head_dim != 0; }, without("--qk-pos-emb-head-dim")},
      {[](C c) { return !is_latent(c) && c.model.v_head_dim != 0; }, without("--v-head-dim")},
  };
}

}  // namespace

Feature multi_latent_attention_feature() {
  return {
      .name = "multi-latent-attention",
      .level = 0,
      .effect =
          "Computes queries, keys and values of attention from low-rank vectors, whose heads have another size for "
          "values than for keys",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<MultiLatentAttentionConfig>("training", config.training); },
      .is_active = is_latent,
      .rules = {needs("--recompute-mla-up-proj or --recompute-modules mla_up_proj", recomputes_up_projections, kMla,
                      is_latent),
                excludes(
                    kMla, is_latent, "--rotary-interleaved",
                    [](const TrainerConfig& c) { return c.model.rotary_interleaved; },
                    ": its pairs are neighbours always, as in every checkpoint"),
                excludes(
                    kMla, is_latent, "--rotary-percent below 1",
                    [](const TrainerConfig& c) { return c.model.rotary_percent != 1; },
                    ": --qk-pos-emb-head-dim says how much of a head is rotated"),
                excludes(
                    kMla, is_latent, "--use-nanopipe-swap",
                    [](const TrainerConfig& c) { return c.parallel.use_nanopipe_swap; },
                    ", which counts on four linear layers"),
                excludes(
                    "--recompute-mla-up-proj or --recompute-modules mla_up_proj", recomputes_up_projections,
                    "--swap-attention", [](const TrainerConfig& c) { return c.training.swap_attention; },
                    ", which moves what the other drops")},
      .ineffective = sizes_of_latent_attention(),
      .resolve = note_dropped_sizes,
      .notices = notices_of_latent_attention,
  };
}

}  // namespace ms::train
