#include "convert/megatron/converter_args.h"

#include "convert/megatron/progress.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

constexpr const char* kNested[] = {"rope_scaling", "rope_parameters"};

json members_json(const MegatronArgs& args) {
  json members = json::object();
  for (const auto& [name, value] : args.members()) {
    if (value.is(PickleKind::kList)) {
      json& list = members[name] = json::array();
      for (const PickleValue item : value.items()) list.push_back(plain_json(item));
    } else {
      members[name] = plain_json(value);
    }
  }
  return members;
}

}  // namespace

bool are_converter_args(const MegatronArgs& args) {
  const auto type = args.find("model_type");
  return args.find("num_hidden_layers").has_value() && type && type->is(PickleKind::kString);
}

HfConfig read_converter_args(const MegatronArgs& args, std::span<const int64_t> noop_layers,
                             const std::string& hf_cfg_dir, std::vector<std::string>& decisions) {
  json members = members_json(args);
  members["num_hidden_layers"] =  // --num-layers converted fewer layers than the folder has
      args.integer("num_layers").value_or(0) - static_cast<int64_t>(noop_layers.size());
  const Family& family = find_family(*args.text("model_type"));
  for (const ConfigKey& key : family.keys) {  // None is left out, as nested members are
    if (key.null_is_none && !members.contains(key.hf)) members[std::string(key.hf)] = nullptr;
  }
  json given;
  if (!hf_cfg_dir.empty()) {
    given = read_hf_config(hf_cfg_dir).original;
    for (const char* key : kNested) {
      if (given.contains(key)) members[key] = given[key];
    }
  }
  const std::string where = cat(args.where(), ": args");
  HfConfig config = parse_hf_config(members, where);
  config.model.mtp_num_layers = args.integer("mtp_num_layers").value_or(0);
  if (!given.is_null()) {
    core::TransformerConfig said = parse_hf_config(given, hf_cfg_dir).model;
    said.mtp_num_layers = config.model.mtp_num_layers;
    if (!same_model(said, config.model)) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--hf-cfg-dir ", hf_cfg_dir, ": its config.json describes another model than ", where));
    }
    config.original = std::move(given);
    return config;
  }
  if (config.model.has_rotary_embedding()) {
    if (!members.contains("rope_theta")) {
      throw Error(ErrorCode::kUnsupported,
                  cat(where,
                      " come from MindSpeed-LLM's converter, which leaves out nested members of config.json, and so "
                      "rope_theta: give the folder of that file to msckpt convert as --hf-cfg-dir"));
    }
    decisions.push_back(
        "args come from MindSpeed-LLM's converter, which leaves out rope_scaling: none is assumed; if config.json "
        "has one, give its folder as --hf-cfg-dir");
  }
  config.original = make_hf_config(config.model, nullptr, core::DType::kBf16, config.family);
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (members.contains(key)) config.original[key] = members[key];
  }
  return config;
}

}  // namespace ms::convert
