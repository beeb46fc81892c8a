#include "convert/detect.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "convert/convert_named.h"
#include "convert/formats.h"
#include "convert/hf_weights.h"
#include "convert/megatron/iterations.h"
#include "convert/named.h"
#include "convert/torch/dcp_reader.h"
#include "core/error.h"
#include "core/log.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

// Describes a folder that users mistake for a checkpoint; null if it is not such a folder.
const char* part_of_a_checkpoint(const fs::path& folder) {
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"model_optim_rng.pt", "the folder of one Megatron rank; give that of the iteration, or the one above"},
      {"adapter_config.json", "a LoRA adapter; --lora merges it into the model that --load-dir names"},
      {"config.json", "config.json without weights (model.safetensors, pytorch_model.bin or their indices)"},
  };
  for (const auto& [name, what] : kParts) {
    if (fs::exists(folder / name)) return what;
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".distcp") return "*.distcp without .metadata, which is written last: the save was interrupted";
    if (ending == ".gguf")
      return "a GGUF file, which can be written, but not read; verify --against SOURCE --prove checks it";
  }
  return nullptr;
}

// Refuses an iteration of Megatron's torch_dist without the file that is written last. Plain DCP has no such file, so
// this check comes before detection as DCP.
void refuse_torn_megatron_dist(const fs::path& folder) {
  const auto torn = megatron_iterations(folder, [](const fs::path& inner) { return is_dcp(inner.string()); });
  if (torn.empty()) return;
  throw Error(ErrorCode::kCorruptData,
              cat(torn[0].string(), ": no metadata.json, which Megatron writes last: the save was interrupted"));
}

}  // namespace

Detection detect_format(const std::string& path) {
  const fs::path folder(path);
  std::error_code error;
  const fs::file_type type = fs::status(folder, error).type();
  if (type == fs::file_type::not_found) throw Error(ErrorCode::kNotFound, cat(path, ": no such file or folder"));
  if (type != fs::file_type::directory) {
    if (std::string sign = format_row(Format::kFile).sign(path); !sign.empty()) return {Format::kFile, std::move(sign)};
    throw Error(ErrorCode::kInvalidArgument,
                cat(path,
                    ": neither a folder nor a file of tensors (safetensors or torch.save); for a "
                    "checkpoint give its folder"));
  }
  for (const FormatRow& row : formats()) {
    if (row.sign == nullptr) continue;
    if (row.format == Format::kDcp) refuse_torn_megatron_dist(folder);
    if (std::string sign = row.sign(path); !sign.empty()) return {row.format, std::move(sign)};
  }
  if (const auto weights = find_weight_files(path))
    return {Format::kHuggingFace, weights->rule()};  // of an adapter, ..
  if (const char* part = part_of_a_checkpoint(folder)) throw Error(ErrorCode::kNotFound, cat(path, ": ", part));
  throw Error(ErrorCode::kNotFound,
              cat(path,
                  ": contains no checkpoint (looked for manifest.json, iter_*/manifest.json, mp_rank_*, "
                  "iter_*/mp_rank_*, .metadata, latest, latest_universal, *_model_states.pt, params.json with "
                  "consolidated.00.pth, model.safetensors and "
                  "pytorch_model.bin, "
                  "and their indices)"));
}

std::unique_ptr<ckpt::Source> open_source(const std::string& path, const OpenOptions& asked) {
  const Detection found = detect_format(path);
  const std::string text = cat(path, ": format ", format_name(found.format), " (", found.rule, ")");
  core::log(found.format == Format::kNative ? core::LogLevel::kDebug : core::LogLevel::kInfo, "convert.detect", text);
  if (asked.as_named && !has_own_names(found.format)) {
    throw Error(ErrorCode::kInvalidArgument, cat("--as-named: ", path, ", ", format_row(found.format).noun,
                                                 ", has no tensor names of its own to keep"));
  }
  ConvertOptions options;
  options.hf_cfg_dir = asked.hf_cfg_dir;
  options.as_named = asked.as_named;
  std::vector<std::string> decisions;
  const SourceRequest request = {.options = options, .family = nullptr, .extras = {}, .for_proof = asked.for_proof};
  auto source = format_row(found.format).open(path, request, decisions);
  for (const std::string& decision : decisions) core::log_info("convert.source", decision);
  if (!source->info().has_model) {
    core::log_info("convert.source", cat(path, ": no known family: tensors keep their own names"));
  }
  return source;
}

SourcePair open_comparable(const std::string& first, const std::string& second, const OpenOptions& options) {
  SourcePair pair{open_source(first, options), open_source(second, options)};
  if (pair.first->info().has_model == pair.second->info().has_model) return pair;
  const bool is_first = pair.first->info().has_model;
  const std::string& known = is_first ? first : second;
  if (!has_own_names(detect_format(known).format)) {  // open the other through its family, if it names one
    OpenOptions with_family = options;
    const std::string& other = is_first ? second : first;
    with_family.hf_cfg_dir = config_folder_of(other);
    if (detect_format(other).format == Format::kRankFiles && !with_family.hf_cfg_dir.empty()) {
      (is_first ? pair.second : pair.first) = open_source(other, with_family);
      return pair;
    }
  }
  OpenOptions named = options;
  named.as_named = true;
  core::log_info("convert.source", cat(known, ": reopened under its own names, like the other"));
  (is_first ? pair.first : pair.second) = open_source(known, named);
  return pair;
}

}  // namespace ms::convert
