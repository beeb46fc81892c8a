#include "train/model/rotary_embedding.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "train/config.h"
#include "train/features/context_parallel.h"

namespace ms::train {
namespace {

int64_t original_context(const core::TransformerConfig& config) {
  return config.rope_scaling_original_max_position_embeddings > 0 ? config.rope_scaling_original_max_position_embeddings
                                                                  : config.max_position_embeddings;
}

void stretch_llama3(const core::TransformerConfig& config, std::vector<float>& frequencies) {
  const auto context = static_cast<float>(original_context(config));
  const auto factor = static_cast<float>(config.rope_scaling_factor);
  const auto low = static_cast<float>(config.rope_scaling_low_freq_factor);
  const auto high = static_cast<float>(config.rope_scaling_high_freq_factor);
  for (float& frequency : frequencies) {
    const float wavelength = 2.0F * std::numbers::pi_v<float> / frequency;
    if (wavelength > context / low) {
      frequency /= factor;
    } else if (wavelength >= context / high) {
      const float smooth = (context / wavelength - low) / (high - low);
      frequency = (1.0F - smooth) * frequency / factor + smooth * frequency;
    }
  }
}

void stretch_yarn(const core::TransformerConfig& config, std::vector<float>& frequencies) {
  const auto dim = static_cast<double>(2 * frequencies.size());
  const auto context = static_cast<double>(original_context(config));
  // The pair that turns `turns` times within the original context, as a fraction of the pairs' index.
  const auto pair_of = [&](double turns) {
    return dim * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(config.rotary_base));
  };
  const double first = std::max(std::floor(pair_of(config.rope_scaling_beta_fast)), 0.0);
  double last = std::min(std::ceil(pair_of(config.rope_scaling_beta_slow)), dim - 1);
  if (last == first) last += 0.001;
  const auto factor = static_cast<float>(config.rope_scaling_factor);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const auto ramp = static_cast<float>((static_cast<double>(i) - first) / (last - first));
    const float kept = 1.0F - std::clamp(ramp, 0.0F, 1.0F);
    frequencies[i] = frequencies[i] / factor * (1.0F - kept) + frequencies[i] * kept;
  }
}

// YaRN's magnitude (Peng et al. 2023, equation 22, with DeepSeek's weight).
double yarn_magnitude(const core::TransformerConfig& config, double weight) {
  return config.rope_scaling_factor <= 1 ? 1.0 : 0.1 * weight * std::log(config.rope_scaling_factor) + 1;
}

}  // namespace

std::vector<float> rotary_inverse_frequencies(const core::TransformerConfig& config, int64_t seq_length) {
  const int64_t dim = config.rotary_dim();
  double base = config.rotary_base;
  const std::string& type = config.rope_scaling_type;
  if (type == "dynamic" && dim > 2) {
    const auto context = static_cast<double>(config.max_position_embeddings);
    const double length = std::max(static_cast<double>(seq_length), context);
    const double stretch = config.rope_scaling_factor * length / context - (config.rope_scaling_factor - 1);
    base *= std::pow(stretch, static_cast<double>(dim) / static_cast<double>(dim - 2));
  }
  if (type == "longrope") {
    return ops::rope_inverse_frequencies(dim, base, config.rope_factors(seq_length > original_context(config)));
  }
  std::vector<float> frequencies = ops::rope_inverse_frequencies(dim, base);
  if (type == "linear") {
    for (float& frequency : frequencies) frequency /= static_cast<float>(config.rope_scaling_factor);
  }
  if (type == "llama3") stretch_llama3(config, frequencies);
  if (type == "yarn") stretch_yarn(config, frequencies);
  return frequencies;
}

bool rotary_frequencies_differ(const core::TransformerConfig& config, int64_t seq_length, int64_t other) {
  if (!config.has_rotary_embedding() || config.rope_scaling_type != "longrope") return false;
  return (seq_length > original_context(config)) != (other > original_context(config));
}

double rotary_attention_factor(const core::TransformerConfig& config) {
  const bool is_longrope = config.rope_scaling_type == "longrope";
  if (config.rope_scaling_type != "yarn" && !is_longrope) return 1;
  if (config.rope_scaling_attention_factor > 0) return config.rope_scaling_attention_factor;
  if (is_longrope) {
    if (config.rope_scaling_factor <= 1) return 1;
    return std::sqrt(1 +
                     std::log(config.rope_scaling_factor) / std::log(static_cast<double>(original_context(config))));
  }
  if (config.rope_scaling_mscale > 0 && config.rope_scaling_mscale_all_dim > 0) {
    return yarn_magnitude(config, config.rope_scaling_mscale) /
           yarn_magnitude(config, config.rope_scaling_mscale_all_dim);
  }
  return yarn_magnitude(config, 1.0);
}

double latent_score_factor(const core::TransformerConfig& config) {
  if (config.rope_scaling_type != "yarn" || config.rope_scaling_mscale_all_dim == 0) return 1;
  const double magnitude = yarn_magnitude(config, config.rope_scaling_mscale_all_dim);
  return magnitude * magnitude;
}

std::optional<ops::RopeTable> make_rope_table(core::Arena& arena, const core::TransformerConfig& config,
                                              std::vector<ops::PositionSpan> positions, int64_t seq_length) {
  if (!config.has_rotary_embedding()) return std::nullopt;
  return std::make_optional<ops::RopeTable>(
      arena, std::move(positions), rotary_inverse_frequencies(config, seq_length),
      // Latent attention's weights have neighbours as pairs in every checkpoint (DeepSeek).
      config.rotary_interleaved || config.multi_latent_attention ? ops::RopePairs::kNeighbours
                                                                 : ops::RopePairs::kHalves,
      rotary_attention_factor(config));
}

RotaryTables::RotaryTables(core::Arena& arena, const TrainerConfig& config, int cp_rank)
    : arena_(arena), config_(config.model) {
  for (const layout::Segment& segment : rotary_positions(config, cp_rank))
    positions_.push_back({segment.first, segment.count});
  text_length_ = config.generate.generate.empty() ? config.training.seq_length : config_.max_position_embeddings;
  table_ = make_rope_table(arena, config_, positions_, text_length_);
  if (!table_ || config_.rotary_base_local == 0) return;
  core::TransformerConfig local = config_;
  local.rotary_base = config_.rotary_base_local;
  local.rope_scaling_type = core::TransformerConfig().rope_scaling_type;
  local_ = make_rope_table(arena, local, positions_, text_length_);
}

const ops::RopeTable* RotaryTables::of_layer(int64_t layer) const {
  if (!table_) return nullptr;
  return local_ && config_.window_of_layer(layer) > 0 ? &*local_ : &*table_;
}

void RotaryTables::set_text_length(int64_t tokens) {
  if (rotary_frequencies_differ(config_, text_length_, tokens))
    *table_ = *make_rope_table(arena_, config_, positions_, tokens);
  text_length_ = tokens;
}

}  // namespace ms::train
