#include "convert/detect.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "convert/formats.h"
#include "convert/megatron/iterations.h"
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

// An iteration of Megatron's torch_dist that lacks the file written last. Plain DCP has no such file, so this has to be
// asked before the folder is taken for one.
void refuse_torn_megatron_dist(const fs::path& folder) {
  const auto torn = megatron_iterations(folder, [](const fs::path& inner) { return is_dcp(inner.string()); });
  if (torn.empty()) return;
  throw Error(
      ErrorCode::kCorruptData,
      cat(torn[0].string(), ": no metadata.json, which Megatron writes when all is there: that save was cut short"));
}

}  // namespace

Detection detect_format(const std::string& path) {
  const fs::path folder(path);
  if (!fs::exists(folder)) throw Error(ErrorCode::kNotFound, cat(path, ": no such folder"));
  if (!fs::is_directory(folder))
    throw Error(ErrorCode::kInvalidArgument, cat(path, ": not a folder; give the one that holds it"));
  for (const FormatRow& row : formats()) {
    if (row.sign == nullptr) continue;
    if (row.format == Format::kDcp) refuse_torn_megatron_dist(folder);
    if (std::string sign = row.sign(path); !sign.empty()) return {row.format, std::move(sign)};
  }
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
  const ConvertOptions defaults;
  std::vector<std::string> decisions;
  auto source = format_row(found.format).open(path, {.options = defaults, .family = nullptr, .extras = {}}, decisions);
  for (const std::string& decision : decisions) core::log_info("convert.source", decision);
  return source;
}

}  // namespace ms::convert
