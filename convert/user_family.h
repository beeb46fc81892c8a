// A family as JSON: the output of `msckpt families --explain NAME` for a built-in family, and the input of --name-map.
//
//   {"family": "llama",                                     base for what is not given here; may be left out
//    "model_type": "granite", "architecture": "GraniteForCausalLM",                         as in config.json
//    "structure": {"normalization": "RMSNorm", "swiglu": true, "add_bias_linear": false},   the same in all models
//    "config": {"hidden_size": "hidden_size", "rms_norm_eps": {"field": "norm_epsilon", "absent": 1e-06},
//               "sliding_window": null},                    keys of config.json and their fields; null: not this key
//    "required": {"mlp_bias": false},                       keys that must have this value
//    "harmless": ["router_dtype"],                          keys that do not affect what is computed
//    "tensors": {
//      "embedding.word_embeddings.weight": "model.embed_tokens.weight",
//      "decoder.layers.{layer}.self_attention.linear_qkv.weight": {"qkv": "model.layers.{layer}.wqkv.weight"},
//      "decoder.layers.{layer}.mlp.linear_fc1.weight": {"gate": "model.layers.{layer}.w1", "up": ".."},
//      "decoder.layers.{layer}.mlp.linear_fc2.weight": {"whole": "model.layers.{layer}.w2", "transposed": true}, ..}}
//
// Fields are those of core/transformer_config.h, which are also mstrain's flags; in `structure` they set the placement
// of norms (pre_norm, post_norm), biases, activation, kind of RoPE, multipliers, q and k norms, and so on. A key of
// `config` is {"field", "absent": value if the key is absent, "also": alternative key, "null_is_none": null is 0,
// "whole_number", "negated", "may_be_zero"}.
//
// Tensors: our names on the left, with {layer} and {expert} for indices; on the right a name, or the names of parts:
// query, key and value; qkv: all of q, then k, then v; qkv_grouped: for each query group its q heads, its k, its v;
// gate and up; whole. transposed: stored [in, out]. "also": an alternative name in files; for an expert, the tensor of
// all experts. The prefix before {layer} is the same in all names. Parameters that a model does not have need no name.
// Tensors are written in this order, or in that of "order", a list of their names.
//
// Further members, explained in family.h: "heads", "query_groups", "activation", "head_size", "rotary", "windows",
// "tied", "experts", "mtp", "prefix", "about".
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "convert/family.h"
#include "core/io/json.h"

namespace ms::convert {

class UserFamily {
 public:
  // path: of the JSON file. Throws kNotFound, kIo; kInvalidArgument for an invalid map, naming the key; kUnsupported
  // for an unknown base family. check_named (name_map.h) checks that all parameters are named, once config.json has
  // been read.
  explicit UserFamily(const std::string& path);
  UserFamily(const nlohmann::ordered_json& map, std::string_view where);
  UserFamily(const UserFamily&) = delete;
  UserFamily& operator=(const UserFamily&) = delete;

  const Family& family() const { return family_; }
  const nlohmann::ordered_json& map() const { return map_; }  // as it was read

 private:
  friend class UserFamilyReader;
  std::string_view keep(std::string_view text) { return strings_.emplace_back(text); }

  nlohmann::ordered_json map_;
  std::deque<std::string> strings_;  // referred to by family_, like all members below
  std::vector<FixedField> structure_;
  std::vector<ConfigKey> keys_;
  std::vector<RequiredFlag> required_;
  std::vector<std::string_view> harmless_, activation_keys_;
  std::vector<NameRule> before_, layer_, after_, mtp_before_, mtp_after_;
  Family family_;
};

// Returns the whole family, without a base: UserFamily makes the same family from it.
nlohmann::ordered_json explain_family(const Family& family);

}  // namespace ms::convert
