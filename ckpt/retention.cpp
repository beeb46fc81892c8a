#include "ckpt/retention.h"

#include "core/error.h"
#include "core/io/atomic_directory.h"
#include "core/io/file.h"

namespace ms::ckpt {

namespace fs = std::filesystem;
using core::cat;

std::vector<Generation> superseded(const fs::path& root, const Generation& newest, const Retention& retention) {
  std::vector<Generation> result;
  if (retention.keeps_all()) return result;
  const int64_t keep = std::max<int64_t>(1, retention.keep_last);
  int64_t seen = 1;  // newest itself
  for (const Generation& generation : list_generations(root)) {
    if (std::pair(generation.iteration, generation.attempt) >= std::pair(newest.iteration, newest.attempt)) continue;
    if (seen++ < keep) continue;
    if (retention.retain_interval > 0 && generation.iteration % retention.retain_interval == 0) continue;
    result.push_back(generation);
  }
  return result;
}

void remove_generation(const fs::path& root, const Generation& generation) {
  const fs::path trash = root / cat(kTrashPrefix, generation.path.filename().string(), core::temporary_suffix());
  core::rename_durably(generation.path.string(), trash.string());
  std::error_code error;
  fs::remove_all(trash, error);
  if (error) {
    throw core::Error(core::ErrorCode::kIo, cat("cannot remove ", trash.string(), ": ", error.message()));
  }
}

}  // namespace ms::ckpt
