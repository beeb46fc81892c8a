// A seal: what a checkpoint of any format held when it was sealed, kept in a file beside its data.
//
// It gives formats without checksums what ours has. msckpt.seal.json lists a logical hash (logical_hash.h) for every
// tensor and role, which holds for every copy that was resharded or converted without changing an element type, and
// hashes of the stored pieces, which tell in which of them a bit was flipped. SHA256SUMS is for `sha256sum -c`.
// Same content, same bytes: a seal has no date and names no machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/source.h"
#include "ckpt/verify.h"
#include "core/sharded_tensor.h"

namespace ms::ckpt {

inline constexpr const char* kSealName = "msckpt.seal.json";
inline constexpr const char* kSumsName = "SHA256SUMS";

struct SealedTensor {
  std::string key;
  core::TensorRole role = core::TensorRole::kParam;
  core::DType dtype = core::DType::kFp32;
  core::Dims shape;
  uint64_t logical_xxh3 = 0;
  // What it is stored as, "model.safetensors:model.norm.weight", and the hash of those bytes; in order of the names.
  std::vector<std::pair<std::string, uint64_t>> places;
};

struct SealedFile {
  std::string name;  // within the folder, with '/'
  int64_t bytes = 0;
  std::string sha256;
};

struct Seal {
  std::string format;  // "hf", "mg", ..
  int64_t iteration = 0;
  std::vector<SealedTensor> tensors;  // in the order of the source
  std::vector<SealedFile> files;      // by name
};

struct SealOptions {
  int threads = 1;
  std::function<bool()> stopped;                              // throws kIo "interrupted" when true; may be empty
  std::function<void(int64_t done, int64_t total)> progress;  // bytes; one thread at a time; may be empty
  // verify_source: files of the checkpoint are missing, so a tensor that only one side has is no finding of its own.
  bool partial = false;
};

// Reads every tensor of `source`, an open checkpoint in `folder`, and every file there. Throws what reading throws.
Seal make_seal(Source& source, const std::filesystem::path& folder, const std::string& format,
               const SealOptions& options);

// Writes kSealName and kSumsName into the folder, each whole or not at all.
void write_seal(const std::filesystem::path& folder, const Seal& seal);

std::string dump_seal(const Seal& seal);
// Throws kCorruptData for what is no seal; `where` names it. Checks all that can be checked without the data.
Seal parse_seal(std::string_view text, std::string_view where);
// Throws also kNotFound.
Seal read_seal(const std::filesystem::path& path);
// The seal in a folder; nothing if it has none.
std::optional<Seal> find_seal(const std::filesystem::path& folder);

// Compares the files of a folder with the sums of its own seal: one finding for each that differs or is missing. Of a
// missing one it says how many tensors lie in it.
std::vector<Finding> verify_files(const std::filesystem::path& folder, const Seal& seal, const SealOptions& options);

// Reads every tensor and, with a seal, compares the logical hashes: findings name the tensor, and of the sealed
// checkpoint itself the stored piece. What a reader finds damaged, by checksums of the format, is a finding too. Roles
// that the seal has and the source wholly lacks are notes: they may have been left out. Throws kIo.
VerifyReport verify_source(Source& source, const std::filesystem::path& folder, const Seal* seal,
                           const SealOptions& options);

}  // namespace ms::ckpt
