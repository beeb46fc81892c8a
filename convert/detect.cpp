#include "convert/detect.h"

#include <filesystem>
#include <vector>

#include "ckpt/reader.h"
#include "convert/dcp.h"
#include "convert/huggingface.h"
#include "convert/megatron.h"
#include "convert/megatron/iterations.h"
#include "convert/megatron/tree.h"
#include "convert/megatron_dist.h"
#include "convert/torch/dcp_reader.h"
#include "core/error.h"
#include "core/log.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

// Formats of others that we know by sight only, so that the answer is not "nothing here".
std::string foreign_format(const fs::path& folder) {
  if (fs::exists(folder / "latest_universal") || fs::exists(folder / "zero")) return "a DeepSpeed universal checkpoint";
  if (fs::exists(folder / "latest")) return "a DeepSpeed checkpoint (latest)";
  return "";
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
  if (const std::string sign = megatron_sign(folder); !sign.empty()) return {Format::kMegatron, sign};
  if (const std::string sign = megatron_dist_sign(path); !sign.empty()) return {Format::kMegatronDist, sign};
  if (const auto torn = megatron_iterations(folder, [](const fs::path& inner) { return is_dcp(inner.string()); });
      !torn.empty()) {
    throw Error(
        ErrorCode::kCorruptData,
        cat(torn[0].string(), ": no metadata.json, which Megatron writes when all is there: that save was cut short"));
  }
  if (const std::string sign = dcp_sign(path); !sign.empty()) return {Format::kDcp, sign};
  if (const std::string foreign = foreign_format(folder); !foreign.empty()) {
    throw Error(ErrorCode::kUnsupported, cat(path, ": this is ", foreign, ", which is not supported yet"));
  }
  throw Error(ErrorCode::kNotFound,
              cat(path,
                  ": no checkpoint in it (looked for manifest.json, iter_*/manifest.json, mp_rank_*, "
                  "iter_*/mp_rank_*, .metadata, model.safetensors and pytorch_model.bin, and their indices)"));
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
                                                        : open_dcp(path, {}, decisions);
  for (const std::string& decision : decisions) core::log_info("convert.source", decision);
  return source;
}

}  // namespace ms::convert
