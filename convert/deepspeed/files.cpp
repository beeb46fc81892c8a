#include "convert/deepspeed/files.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

#include "convert/detail/printable.h"
#include "core/error.h"
#include "core/io/file.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

constexpr std::string_view kModelStates = "_model_states.pt", kOptimStates = "_optim_states.pt";
constexpr int64_t kMaxTagBytes = 4096;

// Removes `text` from the front of `name`, if it is there.
bool take(std::string_view& name, std::string_view text) {
  if (!name.starts_with(text)) return false;
  name.remove_prefix(text.size());
  return true;
}

std::optional<int> take_number(std::string_view& name) {
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  name.remove_prefix(static_cast<size_t>(end - name.data()));
  return number;
}

// "[bf16_][zero_pp_rank_D_]mp_rank_M" before an ending.
struct RankName {
  std::optional<int> data;  // D
  int model = 0;            // M
};

std::optional<RankName> parse_name(std::string_view name, std::string_view ending) {
  if (!name.ends_with(ending)) return std::nullopt;
  name.remove_suffix(ending.size());
  RankName ranks;
  const bool of_data =
      take(name, "bf16_zero_pp_rank_") || take(name, "fp16_zero_pp_rank_") || take(name, "zero_pp_rank_");
  if (of_data) {
    ranks.data = take_number(name);
    if (!ranks.data || !take(name, "_")) return std::nullopt;
  }
  const auto model = take(name, "mp_rank_") ? take_number(name) : std::nullopt;
  if (!model || !name.empty()) return std::nullopt;
  ranks.model = *model;
  return ranks;
}

// A pipeline layer, or an expert of one.
bool is_of_layer(std::string_view name) { return name.starts_with("layer_") && name.ends_with("model_states.pt"); }

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the paths of ranks 0, 1, .., all of which must exist.
std::vector<std::string> all_ranks(const std::map<int, std::string>& files, const fs::path& folder,
                                   std::string_view what) {
  std::vector<std::string> paths;
  for (const auto& [rank, name] : files) {
    if (rank != static_cast<int>(paths.size())) {
      throw Error(ErrorCode::kCorruptData, cat(folder.string(), ": the ", what, " of data-parallel rank ", paths.size(),
                                               " are missing, but those of rank ", files.rbegin()->first, " exist"));
    }
    paths.push_back((folder / name).string());
  }
  return paths;
}

Error no_model_states(const fs::path& folder) {
  return Error(ErrorCode::kNotFound,
               cat(folder.string(), ": contains no *_model_states.pt, so it is not a DeepSpeed checkpoint"));
}

}  // namespace

std::string first_model_states(const fs::path& folder) {
  for (const std::string& name : names_in(folder)) {
    if (parse_name(name, kModelStates) || is_of_layer(name)) return name;
  }
  return "";
}

fs::path deepspeed_folder(const fs::path& path, const char* pointer) {
  const fs::path file = path / pointer;
  if (!fs::exists(file)) {
    core::confine_reads(path.string());
    return path;
  }
  const core::File opened = core::File::open_read(file.string());
  std::string tag(static_cast<size_t>(std::min(opened.size_bytes(), kMaxTagBytes)), '\0');
  opened.pread(std::as_writable_bytes(std::span(tag)), 0);
  while (!tag.empty() && (tag.back() == '\n' || tag.back() == '\r' || tag.back() == ' ')) tag.pop_back();
  const bool plain = !tag.empty() && tag != "." && tag != ".." && tag.find('/') == std::string::npos &&
                     tag.find('\0') == std::string::npos;
  if (!plain || !fs::is_directory(path / tag)) {
    throw Error(ErrorCode::kCorruptData,
                cat(file.string(), ": names ", printable(tag), ", but there is no such folder next to it"));
  }
  core::confine_reads((path / tag).string());
  return path / tag;
}

DeepSpeedFiles find_deepspeed_files(const fs::path& folder) {
  const auto unsupported = [&](const std::string& name, std::string_view what) {
    return Error(ErrorCode::kUnsupported, cat((folder / name).string(), ": ", what, " is not supported"));
  };
  std::map<int, std::string> model, optim;
  for (const std::string& name : names_in(folder)) {
    const bool of_model = name.ends_with(kModelStates);
    if (!of_model && !name.ends_with(kOptimStates) && !is_of_layer(name)) continue;
    if (name.find("expert_") != std::string::npos || name.starts_with("expp_rank_")) {
      throw unsupported(name, "a checkpoint with experts");
    }
    if (is_of_layer(name)) throw unsupported(name, "a pipeline module, whose weights do not have transformers' names,");
    const auto ranks = parse_name(name, of_model ? kModelStates : kOptimStates);
    if (!ranks) continue;
    if (ranks->model != 0) throw unsupported(name, "a checkpoint with several model-parallel ranks");
    const auto [at, is_new] = (of_model ? model : optim).emplace(ranks->data.value_or(-1), name);
    if (!is_new) {
      throw Error(ErrorCode::kCorruptData,
                  cat(folder.string(), ": both ", at->second, " and ", name, ": they are from different runs"));
    }
  }
  if (model.empty()) throw no_model_states(folder);
  DeepSpeedFiles files;
  files.folder = folder;
  files.by_rank = model.begin()->first >= 0;
  if (!files.by_rank && model.size() > 1) {
    throw Error(ErrorCode::kCorruptData, cat(folder.string(), ": both ", model.begin()->second, " and ",
                                             model.rbegin()->second, ": of ZeRO 2 and of ZeRO 3"));
  }
  files.model_states = files.by_rank ? all_ranks(model, folder, "model states")
                                     : std::vector<std::string>{(folder / model.begin()->second).string()};
  files.optim_states = all_ranks(optim, folder, "optimizer states");
  return files;
}

DeepSpeedFiles find_universal_files(const fs::path& folder) {
  DeepSpeedFiles files;
  files.folder = folder;
  files.universal = true;
  for (const std::string& name : names_in(folder)) {
    const auto ranks = parse_name(name, kModelStates);
    if (!ranks) continue;
    if (ranks->model != 0) files.several_model_ranks = true;
    const bool better = files.model_states.empty() || (files.by_rank && !ranks->data);
    if (ranks->model != 0 || ranks->data.value_or(0) != 0 || !better) continue;
    files.model_states = {(folder / name).string()};
    files.by_rank = ranks->data.has_value();
  }
  if (files.model_states.empty()) throw no_model_states(folder);
  return files;
}

}  // namespace ms::convert
