// Retention: which generations a root keeps, and how one is removed without ever looking complete while it is deleted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "ckpt/commit.h"

namespace ms::ckpt {

struct Retention {
  int64_t keep_last = 0;        // --save-keep-last: newest generations to keep; 0: all
  int64_t retain_interval = 0;  // --save-retain-interval: keep the newest, and iterations that are multiples; 0: all
  bool keeps_all() const { return keep_last <= 0 && retain_interval <= 0; }
};

// Generations of root to remove after `newest` was committed. Only older ones: generations of later iterations belong
// to another run.
std::vector<Generation> superseded(const std::filesystem::path& root, const Generation& newest,
                                   const Retention& retention);

// Renames the directory to .trash-*, syncs root, then removes it: a crash in between leaves nothing that looks
// complete.
// Throws kIo.
void remove_generation(const std::filesystem::path& root, const Generation& generation);

}  // namespace ms::ckpt
