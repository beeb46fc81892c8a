// Defines a family of Hugging Face models as data: the meaning of its config.json keys and the names of its tensors.
//
// A family is one file in families/ and one line in family.cpp; no other code in convert/ branches on the family.
// Sources: the configuration and modeling files of transformers (keys, defaults, names, shapes, order of the
// state_dict), and megatron/core/transformer for the contents of linear_qkv and linear_fc1.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "core/transformer_config.h"

namespace ms::convert {

// The part of a canonical tensor that a Hugging Face tensor is.
enum class Part : uint8_t {
  kWhole,
  kQuery,  // part of linear_qkv, which holds for each query group its q heads, its k head, its v head
  kKey,
  kValue,
  kQkv,   // all of linear_qkv, ordered [all q | all k | all v]; if ordered by groups as ours, it is kWhole
  kGate,  // first half of linear_fc1's rows
  kUp,    // second half
};

// One Hugging Face tensor. Models that have the canonical tensor (layout::parameter_specs) have it; its shape follows
// from the canonical one. "{expert}" in both names stands for the index of each expert of the layer.
struct NameRule {
  std::string_view hf;         // without the family's prefix, and inside a layer without "layers.N."
  std::string_view canonical;  // without "decoder.layers.N."; kOutputLayer: hf has no prefix
  Part part = Part::kWhole;
  bool transposed = false;  // stored [in, out] (GPT-2's Conv1D)
  // An alternative name in files. For an expert: one tensor [experts, rows, columns] of all experts, in which each
  // one's up follows its gate.
  std::string_view also = "";
  bool is_copy = false;  // copy of a tensor that another rule names; canonical is its full name
};
inline constexpr std::string_view kExpertPlaceholder = "{expert}";

// A key of config.json that corresponds to a field of TransformerConfig.
struct ConfigKey {
  using C = core::TransformerConfig;
  std::string_view hf;
  std::variant<int64_t C::*, double C::*, bool C::*> field;
  std::optional<double> absent = std::nullopt;  // value if the key is absent; nullopt: the key is required
  bool null_is_none = false;                    // null means 0 ("no such thing"), not that the key is absent
  bool whole_number = false;                    // for a double: written without a fraction
  bool negated = false;                         // for a bool
  bool may_be_zero = false;                     // for a size
  std::string_view also = "";                   // alternative key in files
};

// A field with the same value in every model of a family.
struct FixedField {
  using C = core::TransformerConfig;
  template <class T>
  struct To {
    T C::*field;
    std::conditional_t<std::is_same_v<T, std::string>, std::string_view, T> value;
  };
  std::variant<To<bool>, To<int64_t>, To<double>, To<std::string>> to;

  constexpr FixedField() : to(To<bool>{&C::swiglu, false}) {}
  constexpr FixedField(bool C::*field, bool value) : to(To<bool>{field, value}) {}
  constexpr FixedField(int64_t C::*field, int64_t value) : to(To<int64_t>{field, value}) {}
  constexpr FixedField(double C::*field, double value) : to(To<double>{field, value}) {}
  constexpr FixedField(std::string C::*field, std::string_view value) : to(To<std::string>{field, value}) {}
};

// The keys of config.json that determine which layers have experts.
enum class ExpertLayers : uint8_t {
  kNone,
  kAll,
  kAfterFirst,  // first_k_dense_replace, moe_layer_freq
  kSparseStep,  // decoder_sparse_step, mlp_only_layers
};

// A key that may only have this value: its other values are not supported.
struct RequiredFlag {
  std::string_view hf;
  bool value;
};

struct Family {
  std::string_view model_type;    // as in config.json
  std::string_view architecture;  // architectures[0]
  std::span<const FixedField> structure;
  std::span<const ConfigKey> keys;  // besides heads, groups, RoPE, activation, ties and types
  std::span<const RequiredFlag> required;
  std::span<const std::string_view> harmless;  // keys that do not affect the result, besides those of every family
  std::string_view heads_key = "num_attention_heads";
  std::string_view groups_key = "num_key_value_heads";          // "": as many groups as heads
  std::span<const std::string_view> activation_keys;            // the first one is written
  std::string_view activation = "silu";                         // if config.json has none
  int64_t default_head_dim = 0;                                 // if config.json has no head_dim; 0: hidden / heads
  std::optional<double> default_partial_rotary = std::nullopt;  // nullopt: always the whole head
  double default_rotary_base = 10000.0;
  std::string_view rotary_base_key = "rope_theta";
  std::string_view partial_rotary_key = "partial_rotary_factor";
  // The length before the stretch of RoPE scaling, if config.json has none (Phi-3's original_max_position_embeddings
  // beside rope_scaling, which it always writes); 0: max_position_embeddings.
  int64_t default_original_positions = 0;
  // A list of zeros and ones, 0 for a layer without RoPE (SmolLM3's no_rope_layers; if absent, every
  // no_rope_layer_interval-th layer is without); "": all layers have RoPE.
  std::string_view rope_layers_key = "";
  // RoPE base in layers with a window, if config.json has none (Gemma 3's rope_local_base_freq); 0: the family has
  // none.
  double default_rotary_base_local = 0.0;
  // Every n-th layer has no window, if there is no layer_types: the key of n (Gemma 3's sliding_window_pattern).
  std::string_view window_pattern_key = "";
  int64_t default_window_pattern = 0;
  bool default_tied = false;
  std::string_view prefix = "model.";  // of all tensors but the output layer; files saved from the bare model lack it
  std::string_view layers = "layers.";
  std::span<const NameRule> before, layer, after;  // in the order in which transformers writes them
  ExpertLayers expert_layers = ExpertLayers::kNone;
  std::string_view shared_experts_key = "";  // number of shared experts, each as large as a routed one; "": `keys` has
                                             // their size
  // Multi-token prediction layers, numbered after the model's layers: the tensors before and after the layer itself.
  std::string_view mtp_key = "";
  std::span<const NameRule> mtp_before, mtp_after;
  std::string_view about;     // what is special about its files, for people
  std::string_view map_text;  // JSON that it was read from (user_family.h); "": built in
};

std::span<const Family* const> families();
// Throws kUnsupported, naming the known families.
const Family& find_family(std::string_view model_type);
// Returns the first family whose config.json can express this model, for checkpoints that do not come from a Hugging
// Face folder. Throws kUnsupported if there is none.
const Family& family_of_model(const core::TransformerConfig& config);

// Whether the family's config.json can express this model.
bool can_express(const Family& family, const core::TransformerConfig& config);
// What it would not describe: "--softmax-type off-by-one, .."; empty if nothing.
std::string lost_by(const Family& family, const core::TransformerConfig& config);

// Returns the name of the word embeddings.
std::string_view embedding_name(const Family& family);

// Returns the name of the output layer: lm_head.weight in most families.
std::string_view output_name(const Family& family);

// The value of a flag of config.json's: a bias of add_bias_linear counts as on where that is.
bool flag_of(const core::TransformerConfig& model, bool core::TransformerConfig::*field);

// Sets the fields of `structure`.
void apply_structure(const Family& family, core::TransformerConfig& model);

inline constexpr std::string_view kHfOutput = "lm_head.weight";
inline constexpr std::string_view kWordEmbeddings = "embedding.word_embeddings.weight";  // canonical
inline constexpr std::string_view kOutputLayer = "output_layer.weight";                  // canonical

}  // namespace ms::convert
