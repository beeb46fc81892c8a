// Checks a checkpoint against its manifest. Reports all findings at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/comm/communicator.h"

namespace ms::ckpt {

struct Finding {
  std::string file;    // within the generation
  std::string tensor;  // empty if it is not about a tensor
  int64_t begin = -1;  // byte range in the file, -1 if it is not about bytes
  int64_t end = -1;
  std::string text;  // what is wrong: expected and seen
};
// "rank_00000.h5: decoder.final_layernorm.weight: bytes 4096 to 4128: ..."
std::string finding_text(const Finding& finding);

struct VerifyOptions {
  bool fast = false;  // only the manifest's self-hash, the file list, sizes and coverage
  int threads = 1;    // each reads one chunk (8 MiB) at a time
  std::function<void(int64_t done, int64_t total)> progress;  // bytes; from one thread at a time; may be empty
  std::function<bool()> stopped;                              // throws kIo "interrupted" when true; may be empty
  core::Communicator* team = nullptr;  // processes that share the reading; all get all findings; null: only this one
};

struct VerifyReport {
  std::filesystem::path path;
  int64_t iteration = 0;
  int64_t files = 0, tensors = 0;
  int64_t bytes = 0;  // of tensor data
  std::vector<Finding> findings;
  std::vector<std::string> notes;  // harmless: unexpected files
};

// Checks one generation (a directory with a manifest): sizes, coverage (holes, overlaps, shapes), that the tensors are
// those of the model that the manifest describes, and unless fast every chunk hash, every logical hash, the bytes
// between the data, and that the HDF5 structure matches the manifest.
// Throws only for errors that are not about the content: kNotFound, kIo. Collective over the team.
VerifyReport verify_generation(const std::filesystem::path& directory, const VerifyOptions& options);

}  // namespace ms::ckpt
