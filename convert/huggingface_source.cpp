#include <filesystem>

#include "convert/detail/printable.h"
#include "convert/hf_weights.h"
#include "convert/huggingface.h"
#include "convert/mapped_source.h"
#include "convert/passthrough.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/log.h"

namespace ms::convert {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

std::string huggingface_sign(const std::string& folder) {
  const auto weights = find_model_files(folder);
  if (!weights) return "";
  return fs::exists(fs::path(folder) / "config.json") ? cat("config.json and ", weights->rule()) : weights->rule();
}

std::unique_ptr<ckpt::Source> open_huggingface(const std::string& folder, const Family* family,
                                               const std::string& passthrough) {
  core::confine_reads(folder);
  HfConfig config = read_hf_config((fs::path(folder) / "config.json").string(), family);
  const auto weights = find_model_files(folder);
  if (!weights) {
    throw Error(ErrorCode::kNotFound,
                cat(folder, ": neither model.safetensors nor pytorch_model.bin, nor an index of several"));
  }
  NamedTensors tensors = open_weight_files(folder, *weights, OtherEntries::kRefused);
  tensors.passes_through = passthrough_rule(passthrough, config.is_wrapper);
  const NamedTensors::Table& table = tensors.tables[core::TensorRole::kParam];
  config.rename([&](std::string_view name) { return table.find(name) != table.end(); });
  if (!config.unused_keys.empty()) {
    std::string keys;
    for (const std::string& key : config.unused_keys) keys += cat(keys.empty() ? "" : ", ", detail::printable(key));
    core::log_warning("convert.hf", cat(folder, "/config.json: unknown keys, which are kept: ", keys,
                                        "; if one changes what the model computes, a --name-map can map it"));
  }
  for (const std::string& difference : differences_of_training(config.model))
    core::log_warning("convert.hf", cat(folder, "/config.json: ", difference));
  ckpt::CheckpointInfo info;
  const fs::path generation = fs::path(folder) / "generation_config.json";
  if (fs::exists(generation)) info.model_extra["hf_generation_config"] = read_json(generation.string(), 1 << 20);
  return make_mapped_source(std::move(tensors), config, std::move(info));
}

}  // namespace ms::convert
