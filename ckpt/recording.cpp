#include "ckpt/recording.h"

#include <algorithm>
#include <map>

#include "ckpt/commit.h"
#include "core/error.h"
#include "core/log.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

// The newest whole attempt at each iteration of a path; empty: a checkpoint of another format, which may have any.
std::map<int64_t, fs::path> iterations_of(const fs::path& path) {
  std::map<int64_t, fs::path> found;
  if (fs::exists(path / kManifestName)) {
    found.emplace(read_manifest(path).info.iteration, path);
    return found;
  }
  std::error_code none;
  if (!fs::is_directory(path, none)) return found;
  const std::vector<Generation> generations = list_generations(path);
  for (const Generation& generation : generations) {
    if (found.contains(generation.iteration)) continue;
    try {
      check_generation(generation.path);
      found.emplace(generation.iteration, generation.path);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kUnsupported) throw;
      core::log_warning("ckpt.recovery", cat(generation.path.string(), " is skipped: ", e.what()));
    }
  }
  const bool is_native = std::ranges::any_of(
      generations, [](const Generation& generation) { return fs::exists(generation.path / kManifestName); });
  if (found.empty() && is_native) resolve_generation(path);  // throws
  return found;
}

std::string list_text(const std::vector<int64_t>& iterations) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, iterations.size()); ++i) text += cat(i > 0 ? ", " : "", iterations[i]);
  return iterations.size() > kShown ? cat(text, ", .. ", iterations.back()) : text;
}

std::string list_text(const std::map<int64_t, fs::path>& iterations) {
  std::vector<int64_t> numbers;
  for (const auto& [iteration, directory] : iterations) numbers.push_back(iteration);
  return cat(numbers.size() == 1 ? "iteration " : "iterations ", list_text(numbers));
}

[[noreturn]] void refuse_iterations(std::span<const fs::path> paths,
                                    const std::vector<std::map<int64_t, fs::path>>& found,
                                    std::optional<int64_t> iteration) {
  std::string text = iteration ? cat("--iteration ", *iteration, ": not in all of them") : "no iteration is in all";
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!found[i].empty()) text += cat(i == 0 ? ": " : "; ", paths[i].string(), " has ", list_text(found[i]));
  }
  throw Error(ErrorCode::kInvalidArgument, text);
}

}  // namespace

nlohmann::json recording_mark(const Recording& recording) {
  nlohmann::json mark = nlohmann::json::object();
  if (recording.perturbation) mark["perturbation"] = *recording.perturbation;
  if (recording.dtype) mark["dtype"] = core::dtype_name(*recording.dtype);
  return mark;
}

bool is_recording(const CheckpointInfo& info) {
  return info.common.is_object() && info.common.contains(kRecordingMark);
}

std::optional<Recording> recording_of(const CheckpointInfo& info) {
  if (!is_recording(info)) return std::nullopt;
  const nlohmann::json& mark = info.common[kRecordingMark];
  Recording recording;
  if (!mark.is_object()) return recording;
  const nlohmann::json perturbation = mark.value("perturbation", nlohmann::json());
  const nlohmann::json dtype = mark.value("dtype", nlohmann::json());
  if (perturbation.is_number()) recording.perturbation = perturbation.get<double>();
  if (dtype.is_string()) recording.dtype = core::parse_dtype(dtype.get<std::string>());
  return recording;
}

void require_root_of_kind(const fs::path& root, bool recording, std::string_view flag) {
  std::error_code none;
  if (!fs::is_directory(root, none)) return;
  const std::vector<Generation> generations = list_generations(root);
  if (generations.empty()) return;
  try {
    if (is_recording(read_manifest(generations.front().path).info) == recording) return;
  } catch (const Error&) {  // a damaged one is for its readers
    return;
  }
  throw Error(ErrorCode::kInvalidArgument,
              cat(flag, ' ', root.string(), ": it holds ",
                  recording ? "checkpoints" : "what modules computed (--save-tensors)", ". Name another folder"));
}

std::vector<fs::path> directories_of_one_iteration(std::span<const fs::path> paths, std::optional<int64_t> iteration) {
  std::vector<std::map<int64_t, fs::path>> found;
  for (const fs::path& path : paths) found.push_back(iterations_of(path));
  const bool are_roots =
      std::ranges::any_of(paths, [](const fs::path& path) { return !fs::exists(path / kManifestName); });
  std::vector<fs::path> directories(paths.begin(), paths.end());
  if (!are_roots && !iteration) return directories;  // the caller's choice
  std::vector<int64_t> common;
  const auto all_have = [&](int64_t number) {
    return std::ranges::all_of(found, [&](const auto& of_path) { return of_path.empty() || of_path.contains(number); });
  };
  bool any_native = false;
  for (const auto& of_path : found) {
    for (const auto& [number, directory] : of_path) {
      if (all_have(number) && !any_native) common.push_back(number);
    }
    any_native = any_native || !of_path.empty();
  }
  if (!any_native) return directories;
  if (iteration) {
    if (std::ranges::count(common, *iteration) == 0) refuse_iterations(paths, found, iteration);
    common = {*iteration};
  }
  if (common.empty()) refuse_iterations(paths, found, iteration);
  if (common.size() > 1)
    core::log_info("ckpt.recording", cat("iterations ", list_text(common), " are in all: ", common.front(),
                                         " is compared (--iteration chooses another)"));
  for (size_t i = 0; i < paths.size(); ++i) {
    if (const auto at = found[i].find(common.front()); at != found[i].end()) directories[i] = at->second;
  }
  return directories;
}

}  // namespace ms::ckpt
