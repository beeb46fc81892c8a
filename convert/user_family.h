// A family as JSON: what `msckpt families --explain NAME` prints of a built-in one and --name-map reads.
//
//   {"family": "llama",                                     what is not said here is as in this family; may be left out
//    "model_type": "granite", "architecture": "GraniteForCausalLM",                         as config.json has them
//    "structure": {"normalization": "RMSNorm", "swiglu": true, "add_bias_linear": false},   the same in all models
//    "config": {"hidden_size": "hidden_size", "rms_norm_eps": {"field": "norm_epsilon", "absent": 1e-06},
//               "sliding_window": null},                    keys of config.json and their fields; null: not this key
//    "required": {"mlp_bias": false},                       keys that may have no other value
//    "harmless": ["router_dtype"],                          keys that change nothing that is computed
//    "tensors": {
//      "embedding.word_embeddings.weight": "model.embed_tokens.weight",
//      "decoder.layers.{layer}.self_attention.linear_qkv.weight": {"qkv": "model.layers.{layer}.wqkv.weight"},
//      "decoder.layers.{layer}.mlp.linear_fc1.weight": {"gate": "model.layers.{layer}.w1", "up": ".."},
//      "decoder.layers.{layer}.mlp.linear_fc2.weight": {"whole": "model.layers.{layer}.w2", "transposed": true}, ..}}
//
// Fields are those of core/transformer_config.h, which are mstrain's flags too; with `structure` they state placement
// of norms (pre_norm, post_norm), biases, activation, rotary kind, multipliers, q and k norms, and so on. A key of
// `config` is {"field", "absent": value where the key is not there, "also": another name of the key, "null_is_none":
// null is 0, "whole_number", "negated", "may_be_zero"}.
//
// Tensors: on the left our names, with {layer} and {expert} for indices; on the right a name, or names of parts: query,
// key and value; qkv, all of q, then k, then v; qkv_grouped, for each query group its q heads, its k, its v; gate and
// up; whole. transposed: stored [in, out]. "also": another name that files have for it, of experts that of one tensor
// of them all. What is before {layer} is the same in all names. Parameters that a model does not have need no name.
// Tensors are written in this order, or in that of "order", a list of their names.
//
// Further members, with what they mean in family.h: "heads", "query_groups", "activation", "head_size", "rotary",
// "windows", "tied", "experts", "mtp", "prefix", "about".
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "convert/family.h"

namespace ms::convert {

class UserFamily {
 public:
  // path: of the JSON file. Throws kNotFound, kIo; kInvalidArgument for what is not such a map, naming the key;
  // kUnsupported for a base family that is not known. Whether all parameters of a model are named is check_named's to
  // say (name_map.h), once config.json has said which those are.
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
  std::deque<std::string> strings_;  // that family_ looks at, as at all below
  std::vector<FixedField> structure_;
  std::vector<ConfigKey> keys_;
  std::vector<RequiredFlag> required_;
  std::vector<std::string_view> harmless_, activation_keys_;
  std::vector<NameRule> before_, layer_, after_, mtp_before_, mtp_after_;
  Family family_;
};

// The whole family, without a base: UserFamily makes the same family of it again.
nlohmann::ordered_json explain_family(const Family& family);

}  // namespace ms::convert
