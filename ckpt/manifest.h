// manifest.json: what a generation consists of, written last and hashed; the only commit mark (FORMAT.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/source.h"
#include "core/sharded_tensor.h"

namespace ms::ckpt {

struct ManifestFile {
  std::string name;  // within the directory: no '/', not ".."
  int64_t bytes = 0;
  uint64_t xxh3 = 0;  // structure hash
};

struct ManifestBox {
  int32_t file = 0;  // index into files
  std::string dataset;
  core::Dims offset, shape;
  int64_t at = 0;                    // byte offset of the box's data in the file
  std::vector<uint64_t> chunk_xxh3;  // of every 8 MiB of them
};

struct ManifestTensor {
  std::string name;
  core::TensorRole role = core::TensorRole::kParam;
  core::DType dtype = core::DType::kFp32;
  core::Dims shape;
  uint64_t logical_xxh3 = 0;
  std::vector<ManifestBox> boxes;

  int64_t size_bytes() const { return core::num_elements(shape) * core::size_of(dtype); }
};

struct Manifest {
  std::string producer;
  int64_t attempt = 0;  // 0, or N for a directory iter_NNNNNNN.rN
  CheckpointInfo info;
  bool durable = true;  // false: the file system could not fsync directories
  std::vector<ManifestFile> files;
  std::vector<ManifestTensor> tensors;
};

inline constexpr const char* kManifestName = "manifest.json";

// The document, its self_xxh3 filled in. Same manifest, same bytes.
std::string dump_manifest(const Manifest& manifest);

// Checks everything that can be checked without the rank files: self-hash, names, shapes, that each box lies inside its
// tensor and inside its file. Not coverage: see plan.h. `where` names the file in errors.
// Throws kCorruptData, and kUnsupported for a newer format_version.
Manifest parse_manifest(std::string_view text, std::string_view where);

// Reads directory/manifest.json. Throws also kNotFound.
Manifest read_manifest(const std::filesystem::path& directory);

// XXH3 of the document with the value of self_xxh3 zeroed.
uint64_t manifest_self_hash(std::string text, std::string_view where);

}  // namespace ms::ckpt
