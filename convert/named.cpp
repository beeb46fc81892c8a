#include "convert/named.h"

#include <filesystem>
#include <utility>

#include "convert/dcp.h"
#include "convert/dcp_named.h"
#include "convert/deepspeed.h"
#include "convert/hf_weights.h"
#include "convert/huggingface_config.h"
#include "convert/named_source.h"
#include "convert/torch/dcp_reader.h"
#include "convert/torch/legacy_file.h"
#include "convert/torch/rank_files.h"
#include "convert/torch/state_dict.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;

constexpr int64_t kMaxConfigBytes = 16 << 20;

enum class Kind { kNone, kTorchFile, kSafetensors, kWeights, kRankFiles, kDcp, kDeepSpeed, kUniversal };

struct Found {
  Kind kind = Kind::kNone;
  std::string rule;
};

Found look_at_file(const std::string& path) {
  const core::File file = core::File::open_read(path);
  std::byte start[9]{};
  if (file.size_bytes() >= static_cast<int64_t>(sizeof start)) file.pread(start, 0);
  const auto is = [&](size_t at, char c) { return start[at] == static_cast<std::byte>(c); };
  if (is(0, 'P') && is(1, 'K')) return {Kind::kTorchFile, "a torch.save file"};
  if (is_legacy_torch_file(ArchiveRange::whole(path))) return {Kind::kTorchFile, "a torch.save file before 1.6"};
  if (is(8, '{')) return {Kind::kSafetensors, "a safetensors file"};
  return {};
}

Found look_at(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    throw Error(ErrorCode::kNotFound, cat(path, ": no such file or folder"));
  if (status.type() != fs::file_type::directory) return look_at_file(path);
  if (std::string sign = rank_files_sign(path); !sign.empty()) return {Kind::kRankFiles, std::move(sign)};
  if (const auto weights = find_weight_files(path)) return {Kind::kWeights, weights->rule()};
  if (std::string sign = dcp_sign(path); !sign.empty()) return {Kind::kDcp, std::move(sign)};
  if (std::string sign = deepspeed_sign(path); !sign.empty()) return {Kind::kDeepSpeed, std::move(sign)};
  if (std::string sign = universal_sign(path); !sign.empty()) return {Kind::kUniversal, std::move(sign)};
  return {};
}

// Reads config.json and generation_config.json next to the tensors, if there are any.
ckpt::CheckpointInfo info_of(const std::string& path) {
  ckpt::CheckpointInfo info;
  info.has_model = false;
  const fs::path folder = config_folder_of(path);
  if (folder.empty()) return info;
  json config = read_json((folder / "config.json").string(), kMaxConfigBytes);
  if (!config.is_object()) {
    throw Error(ErrorCode::kCorruptData, cat((folder / "config.json").string(), ": expected a JSON object"));
  }
  if (config.contains("model_type") && config["model_type"].is_string())
    info.model_extra["model_type"] = config["model_type"];
  info.model_extra["hf_config"] = std::move(config);
  const fs::path generation = folder / "generation_config.json";
  std::error_code error;
  if (fs::is_regular_file(generation, error)) {
    info.model_extra["hf_generation_config"] = read_json(generation.string(), kMaxConfigBytes);
  }
  return info;
}

}  // namespace

std::string config_folder_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return "";
  for (const fs::path& folder : {fs::path(path), fs::path(path) / "huggingface"}) {
    // A config.json that cannot be read counts as found: the error is reported when it is read.
    if (fs::symlink_status(folder / "config.json", error).type() != fs::file_type::not_found) return folder.string();
  }
  return "";
}

std::string small_files_of(const std::string& path) {
  std::error_code error;
  const std::string config = config_folder_of(path);
  return !config.empty() ? config : fs::is_directory(path, error) ? path : "";
}

std::string named_sign(const std::string& path) { return look_at(path).rule; }

std::unique_ptr<ckpt::Source> open_named(const std::string& path, bool drop_optimizer,
                                         std::vector<std::string>& decisions) {
  const Found found = look_at(path);
  HfNamedOptions named;
  named.drop_optimizer = drop_optimizer;
  named.as_named = true;
  NamedShards shards;
  shards.where = path;
  switch (found.kind) {
    case Kind::kDeepSpeed:
      return open_deepspeed(path, named, decisions);
    case Kind::kUniversal:
      return open_universal(path, named, decisions);
    case Kind::kTorchFile:
      add_whole_tensors(shards, open_state_dict(path, OtherEntries::kLeftOut));
      break;
    case Kind::kSafetensors:
      add_whole_tensors(shards, open_safetensors(path));
      break;
    case Kind::kWeights:
      shards = whole_shards(open_weight_files(path, *find_weight_files(path), OtherEntries::kLeftOut));
      break;
    case Kind::kRankFiles:
      shards = read_rank_files(path, drop_optimizer, decisions);
      break;
    case Kind::kDcp:
      shards = read_dcp_named(path, drop_optimizer, decisions);
      break;
    case Kind::kNone:
      throw Error(ErrorCode::kNotFound,
                  cat(path,
                      ": contains no named tensors (looked for *.safetensors, pytorch_model.bin, adapter_model.*, "
                      "model_world_size_*_rank_*.pt, .metadata, latest, latest_universal, *_model_states.pt; or give "
                      "the path of a .safetensors, .pt or .bin file)"));
  }
  return make_named_source(std::move(shards), info_of(path));
}

}  // namespace ms::convert
