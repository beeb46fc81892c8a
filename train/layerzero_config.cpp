#include "train/layerzero_config.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "core/error.h"
#include "core/flag_syntax.h"
#include "core/io/yaml.h"
#include "train/config.h"

namespace ms::train {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::ordered_json;

constexpr int kDefaultZero3Size = 8;

// Keys that change nothing here with these values (separated by |; empty: all), and why. Other values are refused.
struct NoEffect {
  std::string_view key, values, why;
};
constexpr std::string_view kNextUnit = "the next layer's weights are gathered while one is used";
constexpr NoEffect kNoEffect[] = {
    {"transformer_layers", "", "a layer is a unit, as are the embedding and the output layer"},
    {"backward_prefetch", "BACKWARD_PRE|BACKWARD_POST", kNextUnit},
    {"forward_prefetch", "", kNextUnit},
    {"limit_all_gathers", "", "two units' weights are there at most"},
    {"backward_reduce_scatter", "BACKWARD_PRE|BACKWARD_POST", "a layer is reduced while the next backward is computed"},
    {"buffer_dtype", "", "tables of positions have the type that they need"},
    {"ignored_modules", "null", "every layer is divided; --freeze-parameters names what does not train"},
    {"param_init_fn", "null", "initial weights are drawn a tensor at a time"},
    {"offload_grads", "", "gradients are in the memory of the host already"},
    {"ckpt_load_path", "null", "--load names the checkpoint, of any layout"},
    {"autocast_input", "", "inputs are tokens"},
    {"autocast_output", "true", "the loss is computed in fp32"},
};

class LayerZeroTranslator {
 public:
  LayerZeroTranslator(const core::ConfigFields& fields, std::string_view where) : given_(fields), where_(where) {}

  FlagsOfFile translate(const ordered_json& yaml, int tp) {
    if (!yaml.is_object()) fail(ErrorCode::kInvalidArgument, "expected keys and values");
    for (const auto& [key, value] : yaml.items()) {
      if (key == "zero3_size") continue;
      if (key == "param_dtype") {
        set_type(key, value, {{"bf16", "bf16"}, {"fp16", "fp16"}});
      } else if (key == "reduce_dtype") {
        if (value == "fp16") fail(ErrorCode::kUnsupported, "reduce_dtype fp16 is not supported: give fp32 or bf16");
        set_type(key, value, {{"bf16", "grad_reduce_in_bf16"}});
      } else {
        add_without_effect(key, value);
      }
    }
    set_size(yaml.contains("zero3_size") ? yaml["zero3_size"] : ordered_json(cat(kDefaultZero3Size)), tp);
    return std::move(result_);
  }

 private:
  struct Switch {
    std::string_view value;
    const char* field;
  };

  [[noreturn]] void fail(ErrorCode code, const std::string& what) const { throw Error(code, cat(where_, ": ", what)); }
  static std::string text_of(const ordered_json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  }
  void set_type(const std::string& key, const ordered_json& value, std::initializer_list<Switch> switches) {
    const std::string text = text_of(value);
    if (value.is_null()) return;
    if (text != "fp16" && text != "bf16" && text != "fp32")
      fail(ErrorCode::kInvalidArgument, cat(key, " is ", text, "; expected fp16, bf16 or fp32"));
    for (const Switch& one : switches) {
      const nlohmann::json given = given_.of(one.field);
      const bool is_it = text == one.value;
      if (!given.is_null() && given != is_it)
        fail(ErrorCode::kInvalidArgument,
             cat(key, " is ", text, ", but ", flag_of_field(one.field), " is ", given.dump(), ": give one of both"));
      if (is_it && given.is_null()) result_.flags.push_back(cat(flag_of_field(one.field), "=true"));
    }
  }

  void set_size(const ordered_json& value, int tp) {
    const std::string text = text_of(value);
    int size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || end != text.data() + text.size() || size <= 0)
      fail(ErrorCode::kInvalidArgument, cat("zero3_size is ", text, "; expected a number of ranks, at least 1"));
    if (tp > 0 && size % tp != 0)
      fail(ErrorCode::kInvalidArgument,
           cat("zero3_size ", size, " is not a multiple of --tensor-model-parallel-size ", tp));
    const int of_replicas = size / std::max(1, tp);
    const nlohmann::json given = given_.of("optimizer_weight_shard_size");
    if (!given.is_null() && given != of_replicas)
      fail(ErrorCode::kInvalidArgument, cat("zero3_size ", size, " is --optimizer-weight-shard-size ", of_replicas,
                                            ", not ", given.dump(), ": give one of both"));
    if (given.is_null()) result_.flags.push_back(cat("--optimizer-weight-shard-size=", of_replicas));
  }

  void add_without_effect(const std::string& key, const ordered_json& value) {
    const auto* const known = std::ranges::find(kNoEffect, key, &NoEffect::key);
    if (known == std::end(kNoEffect)) {
      std::vector<std::string> names = {"zero3_size", "param_dtype", "reduce_dtype"};
      for (const NoEffect& row : kNoEffect) names.emplace_back(row.key);
      const std::string near = core::nearest_word(key, names);
      fail(ErrorCode::kInvalidArgument,
           cat("unknown key \"", key, "\"", near.empty() ? "" : cat(". Did you mean ", near, "?")));
    }
    const std::string text = text_of(value);
    const std::string values = cat("|", known->values, "|");
    if (!known->values.empty() && values.find(cat("|", text, "|")) == std::string::npos)
      fail(ErrorCode::kUnsupported,
           cat(key, " ", text, " is not supported (", known->why, "): leave it out, or give ", known->values));
    result_.notices.push_back(cat(key, " ", text, " changes nothing: ", known->why));
  }

  GivenValues given_;
  std::string_view where_;
  FlagsOfFile result_;
};

}  // namespace

FlagsOfFile flags_of_layerzero(const ordered_json& yaml, const core::ConfigFields& fields,
                               int tensor_model_parallel_size, std::string_view where) {
  return LayerZeroTranslator(fields, where).translate(yaml, tensor_model_parallel_size);
}

std::vector<std::string> load_layerzero_file(const TrainerConfig& config, core::ConfigFields& fields) {
  const std::string& path = config.parallel.layerzero_config;
  if (!config.parallel.layerzero || path.empty()) return {};
  const int tp = config.parallel.tensor_model_parallel_size;
  return take_flags_of_file("--layerzero-config", path, fields, [&](const std::string& text) {
    return flags_of_layerzero(core::parse_yaml(text, path), fields, tp, path);
  });
}

}  // namespace ms::train
