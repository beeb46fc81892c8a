#include "ckpt/inspect.h"

#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <map>
#include <sstream>
#include <vector>

#include "core/error.h"
#include "core/io/json.h"

namespace ms::ckpt {
namespace {

struct Row {
  std::string name;
  core::TensorRole role;
  core::DType dtype;
  core::Dims shape;
  int64_t shards = 0;

  int64_t bytes() const { return core::num_elements(shape) * core::size_of(dtype); }
};

// One row per tensor, in the order of the table.
std::vector<Row> rows_of(const Source& source) {
  const ShardTable& shards = source.shards();
  std::vector<Row> rows;
  for (size_t t = 0; t < shards.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    const auto shape = shards.global_shape(tensor);
    rows.push_back(
        {std::string(shards.key(tensor)), shards.role(tensor), shards.dtype(tensor), {shape.begin(), shape.end()}});
  }
  for (size_t i = 0; i < shards.size(); ++i) ++rows[static_cast<size_t>(shards.tensor_of(i))].shards;
  return rows;
}

nlohmann::json model_json(const CheckpointInfo& info) {
  nlohmann::json model = info.model_extra;
  if (!info.has_model) return model;
  core::TransformerConfig::fields(
      [&](const char* name, auto member, const char*) { model[name] = info.model.*member; });
  return model;
}

// "8 in each of 3 layers, ffn 96, 2 a token by a softmax of the chosen, shared ffn 192 with a gate".
std::string experts_text(const core::TransformerConfig& model) {
  const std::vector<bool> layers = model.layers_with_experts();
  std::string text = core::cat(model.num_experts, " in each of ", std::count(layers.begin(), layers.end(), true),
                               " layers, ffn ", model.moe_ffn_hidden_size, ", ", model.moe_router_topk,
                               " a token by a ", model.moe_router_score_function);
  if (model.moe_router_score_function == "softmax") text += model.moe_router_pre_softmax ? " of all" : " of the chosen";
  if (model.moe_router_group_topk > 0)
    text += core::cat(" in ", model.moe_router_group_topk, " of ", model.moe_router_num_groups, " groups");
  if (model.moe_router_topk_scaling_factor != 1) text += core::cat(", times ", model.moe_router_topk_scaling_factor);
  if (model.moe_router_enable_expert_bias) text += ", with a bias";
  if (model.moe_shared_expert_intermediate_size > 0) {
    text += core::cat(", shared ffn ", model.moe_shared_expert_intermediate_size,
                      model.moe_shared_expert_gate ? " with a gate" : "");
  }
  return text;
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[64];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

nlohmann::json inspect_json(const Source& source, const std::string& path) {
  const CheckpointInfo& info = source.info();
  nlohmann::json tensors = nlohmann::json::array();
  int64_t bytes = 0, parameters = 0;
  for (const Row& row : rows_of(source)) {
    nlohmann::json item = {{"name", row.name},     {"role", core::role_name(row.role)},
                           {"shape", row.shape},   {"dtype", core::dtype_name(row.dtype)},
                           {"bytes", row.bytes()}, {"shards", row.shards}};
    if (const auto hash = source.logical_xxh3(row.name, row.role)) item["logical_xxh3"] = core::hex16(*hash);
    tensors.push_back(std::move(item));
    bytes += row.bytes();
    if (row.role == core::TensorRole::kParam) parameters += core::num_elements(row.shape);
  }
  const size_t count = tensors.size();
  return {{"schema", kJsonSchema},
          {"verb", "inspect"},
          {"path", path},
          {"iteration", info.iteration},
          {"layout", info.layout},
          {"model", model_json(info)},
          {"common", info.common},
          {"totals",
           {{"tensors", count}, {"shards", source.shards().size()}, {"bytes", bytes}, {"parameters", parameters}}},
          {"tensors", std::move(tensors)}};
}

std::string inspect_text(const Source& source, const std::string& path, bool tensors) {
  const CheckpointInfo& info = source.info();
  const auto rows = rows_of(source);
  struct Total {
    int64_t tensors = 0, elements = 0, bytes = 0;
    core::DType dtype = core::DType::kFp32;
  };
  std::map<core::TensorRole, Total> totals;
  for (const Row& row : rows) {
    Total& total = totals[row.role];
    ++total.tensors;
    total.elements += core::num_elements(row.shape);
    total.bytes += row.bytes();
    total.dtype = row.dtype;
  }
  std::ostringstream out;
  const core::TransformerConfig& model = info.model;
  std::string sizes;  // empty for many formats
  for (const char* key : {"tp", "cp", "pp", "vpp", "ep", "dp", "zero"}) {
    const auto size = info.layout.find(key);
    if (size == info.layout.end() || (std::string_view(key) == "cp" && *size == 1)) continue;
    sizes += core::cat(' ', key, ' ', size->dump());
  }
  if (const auto found = info.layout.find("layer_map"); found != info.layout.end() && *found != "even") {
    const bool in_a_v = found->is_object() && found->contains("v");
    const nlohmann::json& layers = in_a_v ? (*found)["v"] : *found;
    if (in_a_v) sizes += " in a V";
    if (layers.is_array()) sizes += core::cat(", layers ", layers.dump());
  }
  out << path << "\n  iteration        " << (info.iteration > 0 ? std::to_string(info.iteration) : "none");
  if (const auto family = info.model_extra.value("family", nlohmann::json()); family.is_string()) {
    out << "\n  family           " << family.get_ref<const std::string&>();
  }
  if (!sizes.empty()) out << "\n  layout          " << sizes;
  if (info.has_model) {
    out << "\n  model            " << model.num_layers << " layers, hidden " << model.hidden_size << ", ffn "
        << model.ffn_hidden_size << ", heads " << model.num_attention_heads << " (" << model.query_groups()
        << " groups of head size " << model.kv_channels << "), vocabulary " << model.vocab_size << '\n';
    if (model.has_experts()) out << "  experts          " << experts_text(model) << '\n';
  } else {
    const std::string type = info.model_extra.value("model_type", "");
    out << "\n  model            of no known family" << (type.empty() ? "" : ", model_type " + type)
        << ": tensors under their own names\n";
  }
  for (const auto& [key, value] : info.common.items()) {
    if (key != "iteration" && (value.is_number() || value.is_string()))
      out << "  " << std::left << std::setw(16) << key << ' ' << value.dump() << '\n';
  }
  for (const auto& [role, total] : totals) {
    out << "  " << std::left << std::setw(16) << core::role_name(role) << ' ' << total.tensors << " tensors, "
        << total.elements << " elements, " << core::dtype_name(total.dtype) << ", " << bytes_text(total.bytes) << '\n';
  }
  if (!tensors) return out.str();
  for (const Row& row : rows) {
    out << "  " << std::left << std::setw(60) << row.name << ' ' << std::setw(10) << core::role_name(row.role) << ' '
        << std::setw(5) << core::dtype_name(row.dtype) << ' ' << std::setw(18) << core::cat(row.shape) << ' '
        << row.shards << (row.shards == 1 ? " shard" : " shards") << '\n';
  }
  return out.str();
}

nlohmann::json statistics_json(const ShardTable& table, int32_t tensor, const TensorStatistics& statistics) {
  const auto shape = table.global_shape(tensor);
  return {{"name", table.key(tensor)},
          {"role", core::role_name(table.role(tensor))},
          {"dtype", core::dtype_name(table.dtype(tensor))},
          {"shape", core::Dims(shape.begin(), shape.end())},
          {"elements", statistics.elements},
          {"nan", statistics.nans},
          {"inf", statistics.infinities},
          {"zeros", statistics.zeros},
          {"min", statistics.min},
          {"max", statistics.max},
          {"mean", statistics.mean},
          {"std", statistics.standard_deviation},
          {"histogram", {{"from", statistics.min}, {"to", statistics.max}, {"counts", statistics.histogram}}}};
}

std::string statistics_text(const ShardTable& table, int32_t tensor, const TensorStatistics& statistics) {
  const auto shape = table.global_shape(tensor);
  std::string text = core::cat(
      table.key(tensor), " (", core::role_name(table.role(tensor)), ") ", core::dtype_name(table.dtype(tensor)), " ",
      core::Dims(shape.begin(), shape.end()), "\n  min ", statistics.min, "  max ", statistics.max, "  mean ",
      statistics.mean, "  std ", statistics.standard_deviation, "\n  ", statistics.elements,
      " elements: ", statistics.nans, " NaN, ", statistics.infinities, " infinite, ", statistics.zeros, " zero\n");
  int64_t most = 1;
  for (const int64_t count : statistics.histogram) most = std::max(most, count);
  const double step =
      (statistics.max - statistics.min) / static_cast<double>(std::max<size_t>(1, statistics.histogram.size()));
  for (size_t bin = 0; bin < statistics.histogram.size(); ++bin) {
    const int64_t count = statistics.histogram[bin];
    char line[64];
    std::snprintf(line, sizeof line, "  %12.5g %12lld ", statistics.min + static_cast<double>(bin) * step,
                  static_cast<long long>(count));
    text += core::cat(line, std::string(static_cast<size_t>(40 * count / most), '#'), "\n");
  }
  return text;
}

}  // namespace ms::ckpt
