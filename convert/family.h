// A family of Hugging Face models as data: what its config.json means and what its tensors are called.
//
// A family is one file in families/ and one line in family.cpp; nothing else in convert/ branches on one. Sources: the
// configuration and modeling files of transformers (keys, defaults, names, shapes, order of the state_dict), and
// megatron/core/transformer for what linear_qkv and linear_fc1 hold.
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

// What a Hugging Face tensor is of its canonical tensor.
enum class Part : uint8_t {
  kWhole,
  kQuery,  // of linear_qkv, which holds per query group: its q heads, its k head, its v head
  kKey,
  kValue,
  kQkv,   // all of linear_qkv, in the order [all q | all k | all v]; packed by groups as ours it is kWhole
  kGate,  // first half of linear_fc1's rows
  kUp,    // second half
};

// One tensor of Hugging Face. It is there in models that have the canonical tensor (ckpt::parameter_specs), whose shape
// says its own. "{expert}" in both names: a tensor for each expert of the layer, by its index.
struct NameRule {
  std::string_view hf;         // after the family's prefix, and "layers.N." for those inside a layer
  std::string_view canonical;  // after "decoder.layers.N."; kOutputLayer: hf has no prefix
  Part part = Part::kWhole;
  bool transposed = false;  // stored [in, out] (GPT-2's Conv1D)
  // Another name that files may have for it. Of an expert's: one tensor [experts, rows, columns] of them all, in which
  // gate and up of each follow one another.
  std::string_view also = "";
  bool is_copy = false;  // of what another rule names: canonical is the whole name
};
inline constexpr std::string_view kExpertPlaceholder = "{expert}";

// A key of config.json that is a field of ours.
struct ConfigKey {
  using C = core::TransformerConfig;
  std::string_view hf;
  std::variant<int64_t C::*, double C::*, bool C::*> field;
  std::optional<double> absent = std::nullopt;  // its value where there is no such key; none: the key must be there
  bool null_is_none = false;                    // null means 0, "no such thing", and not that the key is absent
  bool whole_number = false;                    // of a double: written without a fraction
  bool negated = false;                         // of a bool
  bool may_be_zero = false;                     // of a size
  std::string_view also = "";                   // another name that files have for it
};

// A field that is the same in every model of a family.
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

// How config.json says which layers have experts.
enum class ExpertLayers : uint8_t {
  kNone,
  kAll,
  kAfterFirst,  // first_k_dense_replace, moe_layer_freq
  kSparseStep,  // decoder_sparse_step, mlp_only_layers
};

// A key that may only have this value: the others mean something we cannot compute.
struct RequiredFlag {
  std::string_view hf;
  bool value;
};

struct Family {
  std::string_view model_type;    // as in config.json
  std::string_view architecture;  // architectures[0]
  std::span<const FixedField> structure;
  std::span<const ConfigKey> keys;  // beside heads, groups, rotary embedding, activation, ties and types
  std::span<const RequiredFlag> required;
  std::span<const std::string_view> harmless;  // keys that change nothing that is computed, beside those of all
  std::string_view heads_key = "num_attention_heads";
  std::string_view groups_key = "num_key_value_heads";          // "": as many as heads
  std::span<const std::string_view> activation_keys;            // the first is written
  std::string_view activation = "silu";                         // where config.json does not say
  int64_t default_head_dim = 0;                                 // where config.json has no head_dim; 0: hidden / heads
  std::optional<double> default_partial_rotary = std::nullopt;  // none: the family always rotates whole heads
  double default_rotary_base = 10000.0;
  std::string_view rotary_base_key = "rope_theta";
  std::string_view partial_rotary_key = "partial_rotary_factor";
  // A list of zeros and ones, 0 for a layer without rotary embedding (SmolLM3's no_rope_layers; without it the last of
  // every no_rope_layer_interval); "": all have it.
  std::string_view rope_layers_key = "";
  // The base in layers with a window, where config.json does not say (Gemma 3's rope_local_base_freq); 0: no such.
  double default_rotary_base_local = 0.0;
  // The last of every so many layers has no window, where layer_types does not say (Gemma 3's sliding_window_pattern).
  std::string_view window_pattern_key = "";
  int64_t default_window_pattern = 0;
  bool default_tied = false;
  std::string_view prefix = "model.";  // of every tensor but the output layer; files saved from the bare model lack it
  std::string_view layers = "layers.";
  std::span<const NameRule> before, layer, after;  // in the order in which transformers writes them
  ExpertLayers expert_layers = ExpertLayers::kNone;
  std::string_view shared_experts_key = "";  // how many, each as large as a routed one; "": their size is among keys
  // Layers that predict further tokens, counted on behind the model's: what they have before and behind a layer's own.
  std::string_view mtp_key = "";
  std::span<const NameRule> mtp_before, mtp_after;
  std::string_view about;     // what its files have of their own, for people
  std::string_view map_text;  // the JSON that it was read from (user_family.h); "": it is built in
};

std::span<const Family* const> families();
// Throws kUnsupported naming the families that are known.
const Family& find_family(std::string_view model_type);
// The first family whose config.json can say what this model is: for a checkpoint that was never a Hugging Face folder.
// Throws kUnsupported if none can.
const Family& family_of_model(const core::TransformerConfig& config);

// Whether the family's config.json can say what this model is.
bool can_say(const Family& family, const core::TransformerConfig& config);

// Of the word embeddings.
std::string_view embedding_name(const Family& family);

// What the output layer is called: lm_head.weight in most.
std::string_view output_name(const Family& family);

// The fields of `structure`.
void apply_structure(const Family& family, core::TransformerConfig& model);

inline constexpr std::string_view kHfOutput = "lm_head.weight";
inline constexpr std::string_view kWordEmbeddings = "embedding.word_embeddings.weight";  // canonical
inline constexpr std::string_view kOutputLayer = "output_layer.weight";                  // canonical

}  // namespace ms::convert
