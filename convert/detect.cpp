#include "convert/detect.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "ckpt/reader.h"
#include "convert/dcp.h"
#include "convert/deepspeed.h"
#include "convert/huggingface.h"
#include "convert/megatron.h"
#include "convert/megatron/iterations.h"
#include "convert/megatron/tree.h"
#include "convert/megatron_dist.h"
#include "convert/meta.h"
#include "convert/torch/dcp_reader.h"
#include "core/error.h"
#include "core/log.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

// What a folder is that users take for a checkpoint; null if it is nothing of the kind.
const char* part_of_a_checkpoint(const fs::path& folder) {
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"model_optim_rng.pt", "the folder of one rank of Megatron's; give that of the iteration, or the one above"},
      {"adapter_config.json", "a LoRA adapter; --lora merges it into the model that --load-dir names"},
      {"config.json", "config.json without weights beside it (model.safetensors, pytorch_model.bin or their indices)"},
  };
  for (const auto& [name, what] : kParts) {
    if (fs::exists(folder / name)) return what;
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".distcp")
      return "*.distcp without .metadata, which is written when all is there: that save was cut short";
    if (ending == ".gguf") return "a GGUF file, which is written, not read";
  }
  return nullptr;
}

}  // namespace

std::string_view format_name(Format format) {
  switch (format) {
    case Format::kNative:
      return "ms";
    case Format::kHuggingFace:
      return "hf";
    case Format::kMegatron:
      return "mg";
    case Format::kMegatronDist:
      return "dist";
    case Format::kDcp:
      return "dcp";
    case Format::kDeepSpeed:
      return "ds";
    case Format::kUniversal:
      return "ucp";
    case Format::kMeta:
      return "meta";
    case Format::kGguf:
      return "gguf";
  }
  return "";
}

Detection detect_format(const std::string& path) {
  const fs::path folder(path);
  if (!fs::exists(folder)) throw Error(ErrorCode::kNotFound, cat(path, ": no such folder"));
  if (!fs::is_directory(folder))
    throw Error(ErrorCode::kInvalidArgument, cat(path, ": not a folder; give the one that holds it"));
  if (ckpt::is_native(folder)) return {Format::kNative, "manifest.json with our magic"};
  for (const char* weights :
       {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!fs::exists(folder / weights)) continue;
    if (fs::exists(folder / "config.json")) return {Format::kHuggingFace, cat("config.json and ", weights)};
    throw Error(ErrorCode::kNotFound, cat(path, ": ", weights, " without a config.json; the model's shape is in that"));
  }
  if (const std::string sign = meta_sign(path); !sign.empty()) return {Format::kMeta, sign};
  if (const std::string sign = megatron_sign(folder); !sign.empty()) return {Format::kMegatron, sign};
  if (const std::string sign = megatron_dist_sign(path); !sign.empty()) return {Format::kMegatronDist, sign};
  if (const auto torn = megatron_iterations(folder, [](const fs::path& inner) { return is_dcp(inner.string()); });
      !torn.empty()) {
    throw Error(
        ErrorCode::kCorruptData,
        cat(torn[0].string(), ": no metadata.json, which Megatron writes when all is there: that save was cut short"));
  }
  if (const std::string sign = dcp_sign(path); !sign.empty()) return {Format::kDcp, sign};
  if (const std::string sign = deepspeed_sign(path); !sign.empty()) return {Format::kDeepSpeed, sign};
  if (const std::string sign = universal_sign(path); !sign.empty()) return {Format::kUniversal, sign};
  if (const char* part = part_of_a_checkpoint(folder)) throw Error(ErrorCode::kNotFound, cat(path, ": ", part));
  throw Error(ErrorCode::kNotFound,
              cat(path,
                  ": no checkpoint in it (looked for manifest.json, iter_*/manifest.json, mp_rank_*, "
                  "iter_*/mp_rank_*, .metadata, latest, latest_universal, *_model_states.pt, params.json with "
                  "consolidated.00.pth, model.safetensors and "
                  "pytorch_model.bin, "
                  "and their indices)"));
}

std::unique_ptr<ckpt::Source> open_source(const std::string& path) {
  const Detection found = detect_format(path);
  const std::string text = cat(path, ": format ", format_name(found.format), " (", found.rule, ")");
  core::log(found.format == Format::kNative ? core::LogLevel::kDebug : core::LogLevel::kInfo, "convert.detect", text);
  if (found.format == Format::kHuggingFace) return open_huggingface(path);
  if (found.format == Format::kNative) return ckpt::open_native(path);
  std::vector<std::string> decisions;
  auto source = found.format == Format::kMegatron       ? open_megatron(path, {}, decisions)
                : found.format == Format::kMegatronDist ? open_megatron_dist(path, {}, decisions)
                : found.format == Format::kDcp          ? open_dcp(path, {}, decisions)
                : found.format == Format::kDeepSpeed    ? open_deepspeed(path, {}, decisions)
                : found.format == Format::kUniversal    ? open_universal(path, {}, decisions)
                                                        : open_meta(path, "", decisions);
  for (const std::string& decision : decisions) core::log_info("convert.source", decision);
  return source;
}

}  // namespace ms::convert
