#include "convert/huggingface_config.h"

#include <cmath>
#include <filesystem>

#include "convert/detail/printable.h"
#include "core/error.h"
#include "core/io/file.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

constexpr int64_t kMaxConfigBytes = 16 << 20;
constexpr int64_t kMaxSize = int64_t{1} << 30;  // of any one dimension: products of two stay far from overflow
constexpr int64_t kMaxCount = 1 << 16;          // of layers and heads, for which we make lists
constexpr int kMaxDepth = 64;                   // of JSON, which is printed recursively

// Typed access to config.json; null counts as absent.
class Keys {
 public:
  Keys(const json& object, std::string_view where) : object_(object), where_(where) {}

  const json* find(const char* key) const {
    const auto at = object_.find(key);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }
  int64_t size(const char* key, std::optional<int64_t> absent = std::nullopt, int64_t most = kMaxSize) const {
    const json* value = find(key);
    if (value == nullptr && absent) return *absent;
    if (value == nullptr) fail(ErrorCode::kCorruptData, key, "is missing");
    if (!value->is_number_integer() || *value < 1 || *value > most) {
      fail(ErrorCode::kCorruptData, key,
           cat("is ", detail::printable(value->dump()), "; expected a whole number from 1 to ", most));
    }
    return value->get<int64_t>();
  }
  double positive(const char* key, double absent) const {
    const json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_number() || !(value->get<double>() > 0) || !std::isfinite(value->get<double>())) {
      fail(ErrorCode::kCorruptData, key, cat("is ", detail::printable(value->dump()), "; expected a positive number"));
    }
    return value->get<double>();
  }
  bool flag(const char* key, bool absent) const {
    const json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) {
      fail(ErrorCode::kCorruptData, key, cat("is ", detail::printable(value->dump()), "; expected true or false"));
    }
    return value->get<bool>();
  }
  std::string text(const char* key, const std::string& absent) const {
    const json* value = find(key);
    if (value == nullptr) return absent;
    if (!value->is_string()) {
      fail(ErrorCode::kCorruptData, key, cat("is ", detail::printable(value->dump()), "; expected a string"));
    }
    return value->get<std::string>();
  }
  [[noreturn]] void fail(ErrorCode code, const char* key, const std::string& what) const {
    throw Error(code, cat(where_, ": ", key, " ", what));
  }
  [[noreturn]] void unsupported(const char* key) const {
    fail(ErrorCode::kUnsupported, key,
         cat("is ", detail::printable(object_.at(key).dump()), ", which is not supported"));
  }

 private:
  const json& object_;
  std::string_view where_;
};

// rope_scaling and rope_parameters: only the plain rotary embedding.
void check_rope(const Keys& keys, const char* key, std::string_view where) {
  const json* rope = keys.find(key);
  if (rope == nullptr) return;
  if (!rope->is_object()) keys.unsupported(key);
  const Keys inner(*rope, where);
  for (const char* type : {"rope_type", "type"}) {
    if (inner.text(type, "default") != "default") keys.unsupported(key);
  }
  if (inner.positive("partial_rotary_factor", 1.0) != 1.0) keys.unsupported(key);
  for (const auto& [name, value] : rope->items()) {
    if (name != "rope_type" && name != "type" && name != "rope_theta" && name != "partial_rotary_factor" &&
        !value.is_null()) {
      keys.unsupported(key);  // factor, per-layer tables: a scaling under another name
    }
  }
}

void refuse_unsupported(const Keys& keys, const Family& family, std::string_view where) {
  const std::string activation = keys.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") keys.unsupported("hidden_act");
  check_rope(keys, "rope_scaling", where);
  check_rope(keys, "rope_parameters", where);
  if (keys.positive("partial_rotary_factor", 1.0) != 1.0) keys.unsupported("partial_rotary_factor");
  // In these families attention_bias puts one on o_proj too; Qwen2, whose q, k and v have theirs, has no such key.
  if (keys.flag("attention_bias", false) && !family.qkv_bias) keys.unsupported("attention_bias");
  if (keys.flag("mlp_bias", false)) keys.unsupported("mlp_bias");
  if (keys.flag("use_sliding_window", false)) keys.unsupported("use_sliding_window");
  if (keys.find("quantization_config") != nullptr) keys.unsupported("quantization_config");
  if (const json* types = keys.find("layer_types")) {
    if (!types->is_array()) keys.unsupported("layer_types");
    for (const json& type : *types) {
      if (type != "full_attention") keys.unsupported("layer_types");
    }
  }
}

double rope_theta(const Keys& keys, std::string_view where) {
  const json* parameters = keys.find("rope_parameters");
  if (parameters != nullptr && parameters->contains("rope_theta")) {
    return Keys(*parameters, where).positive("rope_theta", 10000.0);
  }
  return keys.positive("rope_theta", 10000.0);
}

std::optional<core::DType> config_dtype(const Keys& keys) {
  const char* key = keys.find("dtype") != nullptr ? "dtype" : "torch_dtype";
  const std::string text = keys.text(key, "");
  if (text == "float32") return core::DType::kFp32;
  if (text == "bfloat16") return core::DType::kBf16;
  if (text == "float16") return core::DType::kFp16;
  if (text.empty() || text == "auto") return std::nullopt;
  keys.unsupported(key);
}

std::string_view torch_name(core::DType dtype) {
  switch (dtype) {
    case core::DType::kFp32:
      return "float32";
    case core::DType::kBf16:
      return "bfloat16";
    case core::DType::kFp16:
      return "float16";
    default:
      throw Error(ErrorCode::kUnsupported, cat("a Hugging Face model of ", core::dtype_name(dtype),
                                               " is not supported; use --dtype fp32, bf16 or fp16"));
  }
}

void set_model_keys(json& out, const core::TransformerConfig& model, const Family& family) {
  out["architectures"] = {family.architecture};
  out["model_type"] = family.model_type;
  out["hidden_act"] = "silu";
  out["hidden_size"] = model.hidden_size;
  out["intermediate_size"] = model.ffn_hidden_size;
  out["num_hidden_layers"] = model.num_layers;
  out["num_attention_heads"] = model.num_attention_heads;
  out["num_key_value_heads"] = model.query_groups();
  out["head_dim"] = model.kv_channels;
  out["vocab_size"] = model.vocab_size;
  out["rms_norm_eps"] = model.norm_epsilon;
  out["max_position_embeddings"] = model.max_position_embeddings;
  out["rope_theta"] = model.rotary_base;
  out["initializer_range"] = model.init_method_std;
  out["tie_word_embeddings"] = !model.untie_embeddings_and_output_weights;
  if (!family.qkv_bias) out["attention_bias"] = false;
  out.erase("rope_parameters");
  out.erase("rope_scaling");
  out.erase("layer_types");
  for (const char* id : {"bos_token_id", "eos_token_id"}) {
    if (!out.contains(id)) out[id] = nullptr;  // absent would mean the family's default, which is another model's
  }
}

}  // namespace

json read_json(const std::string& path, int64_t max_bytes) {
  const std::string text = core::read_text(path, max_bytes);
  const auto check_depth = [&](int depth, json::parse_event_t, json&) {
    if (depth > kMaxDepth) throw Error(ErrorCode::kCorruptData, cat(path, ": nested deeper than ", kMaxDepth));
    return true;
  };
  try {
    return json::parse(text, check_depth);
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kCorruptData, cat(path, ": not valid JSON: ", detail::printable(error.what())));
  }
}

HfConfig parse_hf_config(const json& object, std::string_view where) {
  if (!object.is_object()) throw Error(ErrorCode::kCorruptData, cat(where, ": expected a JSON object"));
  const Keys keys(object, where);
  HfConfig config;
  config.original = object;
  if (keys.find("model_type") == nullptr) keys.fail(ErrorCode::kCorruptData, "model_type", "is missing");
  try {
    config.family = &find_family(keys.text("model_type", ""));
  } catch (const Error& error) {
    throw error.within(where);
  }
  refuse_unsupported(keys, *config.family, where);

  core::TransformerConfig& model = config.model;
  model.num_layers = keys.size("num_hidden_layers", std::nullopt, kMaxCount);
  model.hidden_size = keys.size("hidden_size");
  model.ffn_hidden_size = keys.size("intermediate_size");
  model.num_attention_heads = keys.size("num_attention_heads", std::nullopt, kMaxCount);
  model.num_query_groups = keys.size("num_key_value_heads", model.num_attention_heads);
  model.group_query_attention = model.num_query_groups != model.num_attention_heads;
  if (!model.group_query_attention) model.num_query_groups = 1;  // as the flags would have it: unused
  const int64_t default_head_dim = config.family->default_head_dim;
  if (keys.find("head_dim") == nullptr && default_head_dim == 0 && model.hidden_size % model.num_attention_heads != 0) {
    keys.fail(ErrorCode::kCorruptData, "head_dim",
              cat("is missing, and hidden_size ", model.hidden_size, " is not a multiple of num_attention_heads ",
                  model.num_attention_heads));
  }
  model.kv_channels =
      keys.size("head_dim", default_head_dim != 0 ? default_head_dim : model.hidden_size / model.num_attention_heads);
  model.vocab_size = keys.size("vocab_size");
  model.max_position_embeddings = keys.size("max_position_embeddings");
  model.normalization = "RMSNorm";
  model.norm_epsilon = keys.positive("rms_norm_eps", 1e-6);
  model.position_embedding_type = "rope";
  model.rotary_base = rope_theta(keys, where);
  model.swiglu = true;
  model.add_bias_linear = false;
  model.add_qkv_bias = config.family->qkv_bias;
  model.qk_layernorm = config.family->qk_layernorm;
  model.untie_embeddings_and_output_weights = !keys.flag("tie_word_embeddings", false);
  model.init_method_std = keys.positive("initializer_range", 0.02);
  if (model.num_attention_heads % model.query_groups() != 0) {
    keys.fail(
        ErrorCode::kCorruptData, "num_key_value_heads",
        cat("is ", model.query_groups(), ", which does not divide num_attention_heads ", model.num_attention_heads));
  }
  config.dtype = config_dtype(keys);
  return config;
}

HfConfig read_hf_config(const std::string& path) {
  const std::string file =
      std::filesystem::is_directory(path) ? (std::filesystem::path(path) / "config.json").string() : path;
  return parse_hf_config(read_json(file, kMaxConfigBytes), file);
}

bool same_model(const core::TransformerConfig& a, const core::TransformerConfig& b) {
  core::TransformerConfig c = a;
  c.init_method_std = b.init_method_std;
  c.make_vocab_size_divisible_by = b.make_vocab_size_divisible_by;
  c.group_query_attention = b.group_query_attention;
  c.num_query_groups = b.num_query_groups;
  return a.query_groups() == b.query_groups() && c == b;
}

json make_hf_config(const core::TransformerConfig& model, const json& original, core::DType dtype) {
  json out = original.is_object() ? original : json::object();
  bool kept = false;
  if (out.contains("model_type")) kept = same_model(parse_hf_config(out, "the stored config.json").model, model);
  if (!kept) set_model_keys(out, model, family_of_model(model));
  const char* key = out.contains("dtype") ? "dtype" : "torch_dtype";
  out[key] = torch_name(dtype);
  return out;
}

std::string hf_json_text(const json& object) { return object.dump(2, ' ', /*ensure_ascii=*/true) + "\n"; }

}  // namespace ms::convert
