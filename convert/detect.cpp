#include "convert/detect.h"

#include <filesystem>
#include <vector>

#include "ckpt/reader.h"
#include "convert/huggingface.h"
#include "convert/megatron.h"
#include "convert/megatron/tree.h"
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
  if (fs::exists(folder / ".metadata")) return "a PyTorch DCP checkpoint (.metadata)";
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("iter_") || !entry.is_directory()) continue;
    for (const auto& inner : fs::directory_iterator(entry.path())) {
      const std::string inside = inner.path().filename().string();
      if (inside == ".metadata" || inside == "metadata.json") {
        return cat("a Megatron checkpoint of --ckpt-format torch_dist (", name, "/", inside, ")");
      }
    }
  }
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
  if (const std::string foreign = foreign_format(folder); !foreign.empty()) {
    throw Error(ErrorCode::kUnsupported, cat(path, ": this is ", foreign, ", which is not supported yet"));
  }
  throw Error(ErrorCode::kNotFound,
              cat(path,
                  ": no checkpoint in it (looked for manifest.json, iter_*/manifest.json, mp_rank_*, "
                  "iter_*/mp_rank_*, model.safetensors and pytorch_model.bin, and their indices)"));
}

std::unique_ptr<ckpt::Source> open_source(const std::string& path) {
  const Detection found = detect_format(path);
  const std::string text = cat(path, ": format ", format_name(found.format), " (", found.rule, ")");
  core::log(found.format == Format::kNative ? core::LogLevel::kDebug : core::LogLevel::kInfo, "convert.detect", text);
  if (found.format == Format::kHuggingFace) return open_huggingface(path);
  if (found.format == Format::kMegatron) {
    std::vector<std::string> decisions;
    auto source = open_megatron(path, {}, decisions);
    for (const std::string& decision : decisions) core::log_info("convert.mg", decision);
    return source;
  }
  return ckpt::open_native(path);
}

}  // namespace ms::convert
