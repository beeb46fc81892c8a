#include "ckpt/commit.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "core/error.h"
#include "core/io/bulk_writer.h"
#include "core/io/file.h"
#include "core/io/lock_file.h"
#include "core/log.h"

namespace ms::ckpt {

using core::cat;
using core::Error;
using core::ErrorCode;
namespace fs = std::filesystem;

namespace {

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<Generation> parse_generation(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.rfind("iter_", 0) != 0) return std::nullopt;
  const std::string_view rest = std::string_view(name).substr(5);
  const size_t dot = rest.find('.');
  const auto iteration = parse_number(rest.substr(0, dot));
  if (!iteration) return std::nullopt;
  if (dot == std::string_view::npos) return Generation{path, *iteration, 0};
  if (rest.size() < dot + 3 || rest[dot + 1] != 'r') return std::nullopt;
  const auto attempt = parse_number(rest.substr(dot + 2));
  if (!attempt) return std::nullopt;
  return Generation{path, *iteration, *attempt};
}

}  // namespace

std::string generation_name(int64_t iteration, int64_t attempt) {
  char name[64];
  std::snprintf(name, sizeof name, "iter_%07lld", static_cast<long long>(iteration));
  return attempt == 0 ? std::string(name) : cat(name, ".r", attempt);
}

fs::path commit_generation(const fs::path& root, core::AtomicDirectory& directory, Manifest manifest) {
  for (const ManifestFile& file : manifest.files) {
    std::error_code error;
    const auto size = fs::file_size(directory.path() / file.name, error);
    if (error || static_cast<int64_t>(size) != file.bytes) {
      throw Error(ErrorCode::kIo,
                  cat(file.name, " has ", error ? "no" : std::to_string(size), " bytes in ", directory.path().string(),
                      ", but its writer wrote ", file.bytes, ". Is the directory shared between all ranks?"));
    }
  }
  manifest.durable = core::fsync_directory(directory.path().string());
  if (!manifest.durable) {
    core::log_warning("ckpt.commit", cat("the file system of ", root.string(),
                                         " cannot sync directories: a checkpoint "
                                         "may be lost if the machine fails"));
  }
  fs::path target;
  for (manifest.attempt = 0;; ++manifest.attempt) {
    target = root / generation_name(manifest.info.iteration, manifest.attempt);
    if (fs::exists(target)) continue;
    write_manifest(directory.path(), manifest);
    if (directory.commit(target)) break;
  }
  try {
    core::write_text_atomically((root / kPointerName).string(), cat(manifest.info.iteration, "\n"));
  } catch (const Error& e) {
    core::log_warning("ckpt.commit", cat(target.string(), " is complete, but the pointer was not updated: ", e.what()));
  }
  return target;
}

std::vector<Generation> list_generations(const fs::path& root) {
  std::vector<Generation> generations;
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    if (auto generation = parse_generation(it->path())) generations.push_back(std::move(*generation));
  }
  std::sort(generations.begin(), generations.end(), [](const Generation& a, const Generation& b) {
    return std::pair(a.iteration, a.attempt) > std::pair(b.iteration, b.attempt);
  });
  return generations;
}

Manifest check_generation(const fs::path& directory) {
  Manifest manifest = read_manifest(directory);
  for (const ManifestFile& file : manifest.files) {
    const fs::path path = directory / file.name;
    std::error_code error;
    const auto status = fs::symlink_status(path, error);
    if (error || !fs::is_regular_file(status)) {
      throw Error(ErrorCode::kCorruptData, cat(path.string(), ": the manifest names it, but it is ",
                                               fs::exists(status) ? "not a regular file" : "absent"));
    }
    const auto size = fs::file_size(path, error);
    if (error || static_cast<int64_t>(size) != file.bytes) {
      throw Error(ErrorCode::kCorruptData,
                  cat(path.string(), ": it has ", size, " bytes, but the manifest says ", file.bytes));
    }
  }
  return manifest;
}

std::optional<int64_t> read_pointer(const fs::path& root) {
  try {
    std::string text = core::read_text((root / kPointerName).string(), 4096);
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    return parse_number(text);
  } catch (const Error&) {
    return std::nullopt;  // advisory: same as an absent pointer
  }
}

std::optional<std::string> pointer_note(const fs::path& root, int64_t iteration) {
  const auto pointer = read_pointer(root);
  if (pointer == iteration) return std::nullopt;
  if (pointer)
    return cat(kPointerName, " names iteration ", *pointer, ", but the newest complete checkpoint is of iteration ",
               iteration);
  if (!fs::exists(root / kPointerName)) return std::nullopt;
  return cat(kPointerName, " is not a number; the newest complete checkpoint is of iteration ", iteration);
}

std::optional<Latest> find_latest(const fs::path& root) {
  const auto generations = list_generations(root);
  Latest latest;
  for (const Generation& generation : generations) {
    try {
      check_generation(generation.path);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kUnsupported) throw;
      latest.notes.push_back(cat(generation.path.filename().string(), " is skipped: ", e.what()));
      continue;
    }
    latest.generation = generation;
    if (auto note = pointer_note(root, generation.iteration)) latest.notes.push_back(std::move(*note));
    return latest;
  }
  if (generations.empty()) return std::nullopt;
  throw Error(ErrorCode::kCorruptData,
              cat(root.string(), ": none of ", generations.size(), " checkpoints is complete: ", latest.notes.front()));
}

fs::path resolve_generation(const fs::path& path) {
  if (fs::exists(path / kManifestName)) return path;
  if (!fs::exists(path)) throw Error(ErrorCode::kNotFound, cat(path.string(), ": no such directory"));
  const auto latest = find_latest(path);
  if (!latest) {
    throw Error(parse_generation(path) ? ErrorCode::kCorruptData : ErrorCode::kNotFound,
                cat(path.string(), ": no checkpoint here: no ", kManifestName, " and no iter_* directory"));
  }
  for (const std::string& note : latest->notes) core::log_warning("ckpt.recovery", note);
  return latest->generation.path;
}

void wait_for_writer(const fs::path& root) { core::wait_for_heir((root / kLockName).string()); }

std::vector<fs::path> list_abandoned(const fs::path& root) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const bool ours = name.rfind("iter_", 0) == 0 || name.rfind(kPointerName, 0) == 0;
    if ((ours && name.find(".tmp-") != std::string::npos) || name.rfind(kTrashPrefix, 0) == 0 ||
        name.rfind(core::kProbePrefix, 0) == 0) {
      paths.push_back(it->path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

int remove_abandoned(const fs::path& root) {
  int removed = 0;
  for (const fs::path& path : list_abandoned(root)) {
    std::error_code error;
    fs::remove_all(path, error);
    removed += error ? 0 : 1;
  }
  return removed;
}

}  // namespace ms::ckpt
