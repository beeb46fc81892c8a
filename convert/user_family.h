// A family that the user gives (--name-map): the parameters of one that we know, under other names.
//
//   {"family": "llama",
//    "tensors": {
//      "embedding.word_embeddings.weight": "backbone.embedding.weight",
//      "decoder.layers.{layer}.self_attention.linear_qkv.weight": {"qkv": "backbone.block.{layer}.qkv.weight"},
//      "decoder.layers.{layer}.mlp.linear_fc1.weight": {"gate": "backbone.block.{layer}.w1", "up": ".."},
//      "decoder.layers.{layer}.mlp.linear_fc2.weight": {"whole": "backbone.block.{layer}.w2", "transposed": true}, ..}}
//
// "family" says what the keys of config.json mean, whatever its model_type is. On the left are our names of all its
// parameters, with {layer} and {expert} for their indices; on the right a name, or names of parts: query, key and
// value, or qkv (all of them, in this order); gate and up; whole. transposed: they are stored [in, out]. What is before
// {layer} is the same in all names.
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
  // path: of the JSON file. Throws kNotFound, kIo; kInvalidArgument for what is not such a map of all parameters,
  // naming the key; kUnsupported for a family that is not known.
  explicit UserFamily(const std::string& path);
  UserFamily(const nlohmann::ordered_json& map, std::string_view where);
  UserFamily(const UserFamily&) = delete;
  UserFamily& operator=(const UserFamily&) = delete;

  const Family& family() const { return family_; }

 private:
  void add(const std::string& key, const nlohmann::ordered_json& names, std::string_view where);
  void add_part(const NameRule& known, bool in_layer, Part part, const std::string& name, bool transposed,
                const std::string& where);
  void check_complete(const Family& known, std::string_view where) const;
  std::string_view keep(std::string text) { return strings_.emplace_back(std::move(text)); }

  std::deque<std::string> strings_;  // that family_ looks at
  std::vector<NameRule> outside_, layer_;
  Family family_;
};

}  // namespace ms::convert
