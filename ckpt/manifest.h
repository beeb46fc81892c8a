// manifest.json: describes the contents of a generation. It is written last and hashed; it is the only commit mark
// (FORMAT.md).
//
// While it is small, the table of tensors and boxes is part of the document, else a packed file of the generation. In
// memory it is stored in columns: about 50 bytes per box of two axes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/logical_hash.h"
#include "ckpt/shard_table.h"
#include "ckpt/source.h"

namespace ms::ckpt {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kTableName = "tensors.bin";
inline constexpr size_t kMaxJsonBoxes = 50'000;  // larger tables go to kTableName

struct ManifestFile {
  std::string name;  // within the directory: no '/', not ".."
  int64_t bytes = 0;
  uint64_t xxh3 = 0;    // structure hash; for the table file: XXH3 of its content
  bool linked = false;  // hard link into an earlier generation: it may hold boxes that this one does not use
};

// Location of a box's data. The dataset's name follows from the tensor (FORMAT.md, section 4).
struct BoxPlace {
  static constexpr int32_t kPacked = -1;
  static constexpr int32_t kMaxFiles = 1 << 30;
  int32_t file : 31 = 0;        // index into files
  bool compressed : 1 = false;  // byte shuffle and zstd
  int32_t copy = 0;             // N of the dataset NAME#N, 0 for NAME; kPacked: in /packed/ROLE
  int64_t at = 0;               // byte offset of the box's data in the file; compressed: of its rows of /chunk_index
};

struct Manifest {
  std::string producer;
  int64_t attempt = 0;  // 0, or N for a directory iter_NNNNNNN.rN
  CheckpointInfo info;
  bool durable = true;  // false: the file system could not fsync directories
  std::vector<ManifestFile> files;
  int32_t table_file = -1;             // index into files of kTableName; -1: the table is in the document
  ShardTable boxes;                    // tensor by tensor
  std::vector<BoxPlace> places;        // one per box
  std::vector<uint32_t> first_chunk;   // per box, index into chunk_xxh3: a hash per 8 MiB of data, the last may be less
  std::vector<uint64_t> chunk_xxh3;    // of all boxes
  std::vector<uint64_t> logical_xxh3;  // one per tensor of `boxes`

  // Appends a box to boxes, places, first_chunk and chunk_xxh3. Its tensor must be the last one or a new one.
  void add_box(int32_t tensor, std::span<const int64_t> offset, std::span<const int64_t> shape, int32_t file,
               int32_t copy, int64_t at, std::span<const uint64_t> chunks, bool compressed = false);
  // Bytes of the file, starting at places[box].at, that belong to the box: its data, or its index rows.
  int64_t placed_bytes(size_t box) const;
  std::span<const uint64_t> chunks_of(size_t box) const;
  std::string dataset_of(size_t box) const;
  const ManifestFile& file_of(size_t box) const { return files[static_cast<size_t>(places[box].file)]; }
  int64_t tensor_bytes() const;  // of all tensors
};

// "/model", "/optim/master": the group that holds the datasets of a role.
std::string_view dataset_group(core::TensorRole role);
// "/model/NAME#1", "/packed/master": the HDF5 dataset that holds a box.
std::string dataset_name(std::string_view key, core::TensorRole role, int32_t copy);
// Inverse of dataset_name; nullopt if the name does not follow the rule.
std::optional<int32_t> dataset_copy(std::string_view dataset, std::string_view key, core::TensorRole role);

inline constexpr int64_t kChunkEntryBytes = 24;  // detail/chunk_index.h
inline constexpr int64_t chunks_in(int64_t size_bytes) { return (size_bytes + kChunkBytes - 1) / kChunkBytes; }

// The document with self_xxh3 filled in. Equal manifests give equal bytes. Omits the table if table_file is set.
std::string dump_manifest(const Manifest& manifest);

// Checks everything that can be checked without the rank files: self-hash, names, shapes, and that each box lies within
// its tensor and its file. Does not check coverage: see plan.h. `where` names the file in errors. A table that is not
// in the document is read from `directory`.
// Throws kCorruptData, and kUnsupported for a newer format_version.
Manifest parse_manifest(std::string_view text, std::string_view where, const std::filesystem::path& directory = {});

// Reads directory/manifest.json and the table. Throws also kNotFound.
Manifest read_manifest(const std::filesystem::path& directory);

// Writes both atomically, the table first, and sets manifest.table_file.
void write_manifest(const std::filesystem::path& directory, Manifest& manifest, size_t max_json_boxes = kMaxJsonBoxes);

// XXH3 of the document with the value of self_xxh3 set to zeros.
uint64_t manifest_self_hash(std::string text, std::string_view where);

}  // namespace ms::ckpt
