// A seal: checksums of a checkpoint of any format, stored in a file beside its data when it is sealed.
//
// Formats without checksums get what the native format has. msckpt.seal.json stores a logical hash (logical_hash.h) for
// every tensor and role, which is valid for every copy that was resharded or converted without changing element types,
// and hashes of the stored pieces, which locate a flipped bit. SHA256SUMS is for `sha256sum -c`.
// Equal content gives equal bytes: a seal contains no date and no host name.
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
  // Stored pieces, "model.safetensors:model.norm.weight", with the hash of their bytes; sorted by name.
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
  std::vector<SealedTensor> tensors;  // in the source's order
  std::vector<SealedFile> files;      // sorted by name
};

struct SealOptions {
  int threads = 1;
  std::function<bool()> stopped;                              // throws kIo "interrupted" when true; may be empty
  std::function<void(int64_t done, int64_t total)> progress;  // bytes; one thread at a time; may be empty
  // verify_source: files of the checkpoint are missing, so a tensor that only one side has is not a separate finding.
  bool partial = false;
};

// Reads every tensor of `source`, an open checkpoint in `folder`, and every file there. Throws what reading throws.
Seal make_seal(Source& source, const std::filesystem::path& folder, const std::string& format,
               const SealOptions& options);

// Writes kSealName and kSumsName into the folder, each atomically.
void write_seal(const std::filesystem::path& folder, const Seal& seal);

std::string dump_seal(const Seal& seal);
// Throws kCorruptData for an invalid seal; `where` names it. Checks everything that can be checked without the data.
Seal parse_seal(std::string_view text, std::string_view where);
// Throws also kNotFound.
Seal read_seal(const std::filesystem::path& path);
// The seal of a folder; nullopt if it has none.
std::optional<Seal> find_seal(const std::filesystem::path& folder);

// Compares the files of a folder with the sums of its own seal: one finding per file that differs or is missing. For a
// missing file it also states how many tensors it held.
std::vector<Finding> verify_files(const std::filesystem::path& folder, const Seal& seal, const SealOptions& options);

// Reads every tensor and, given a seal, compares the logical hashes. Findings name the tensor, and for the sealed
// checkpoint itself the stored piece. Data that fails the format's own checksums is a finding too. A role that the seal
// has and the source lacks entirely gives a note: it may have been left out. Throws kIo.
VerifyReport verify_source(Source& source, const std::filesystem::path& folder, const Seal* seal,
                           const SealOptions& options);

}  // namespace ms::ckpt
