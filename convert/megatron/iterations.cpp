#include "convert/megatron/iterations.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <utility>

#include "convert/detail/printable.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/log.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;

constexpr int64_t kMaxTrackerBytes = 4096;

}  // namespace

std::string megatron_iteration_folder(int64_t iteration) {
  char name[32];
  std::snprintf(name, sizeof name, "iter_%07lld", static_cast<long long>(iteration));
  return name;
}

std::vector<fs::path> megatron_iterations(const fs::path& root, const std::function<bool(const fs::path&)>& holds) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    int64_t iteration = -1;
    if (name.starts_with("iter_")) {
      const auto [last, wrong] = std::from_chars(name.data() + 5, name.data() + name.size(), iteration);
      if (wrong != std::errc() || last != name.data() + name.size()) continue;
    } else if (name != kMegatronRelease) {
      continue;
    }
    if (holds(entry->path())) found.emplace_back(iteration, entry->path());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> folders;
  for (auto& [iteration, folder] : found) folders.push_back(std::move(folder));
  return folders;
}

fs::path choose_megatron_iteration(const fs::path& root, const std::function<bool(const fs::path&)>& holds) {
  const fs::path tracker = root / kMegatronTracker;
  if (fs::exists(tracker)) {
    std::string text = core::read_text(tracker.string(), kMaxTrackerBytes);
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    if (text == kMegatronRelease) return root / text;
    int64_t iteration = -1;
    const auto [last, wrong] = std::from_chars(text.data(), text.data() + text.size(), iteration);
    if (wrong != std::errc() || last != text.data() + text.size() || iteration < 0) {
      throw Error(ErrorCode::kCorruptData,
                  cat(tracker.string(), " holds ", detail::printable(text), ": expected an iteration or \"release\""));
    }
    return root / megatron_iteration_folder(iteration);
  }
  const std::vector<fs::path> folders = megatron_iterations(root, holds);
  if (folders.empty()) {
    throw Error(ErrorCode::kNotFound,
                cat(root.string(), ": contains no Megatron checkpoint (no ", kMegatronTracker, ", no iteration)"));
  }
  core::log_warning("convert.mg", cat(root.string(), ": no ", kMegatronTracker, "; reading the newest iteration, ",
                                      folders[0].filename().string()));
  return folders[0];
}

}  // namespace ms::convert
