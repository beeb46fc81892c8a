// The part of HDF5 that checkpoints use: HDF5 lays a file out, we write the data.
//
// Datasets are contiguous, allocated at once and never filled, so their bytes lie at a known offset and pwrite(2) fills
// them three times faster than H5Dwrite (limits.md, storage). Compressed ones are chunked: HDF5 gives each ready made
// chunk (chunk_codec.h) a place when it is told its size, so chunks that are placed in one order give one file; they
// are written as the others. No object carries a time, so equal content gives equal bytes. HDF5 files are
// single-threaded objects: one thread at a time per H5File (the library itself has a global lock).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/sharded_tensor.h"

namespace ms::core {

struct H5DatasetInfo {
  DType dtype = DType::kFp32;  // kUInt16 for bf16: HDF5 has no such type, an attribute says so
  Dims shape;
  int64_t offset = -1;  // of the first byte in the file; -1 if it is not contiguous
};

struct H5Chunk {
  int64_t offset = 0;  // of the stored bytes in the file
  int64_t bytes = 0;
};

class H5File {
 public:
  static H5File create(const std::string& path);      // replaces; throws kIo
  static H5File open_write(const std::string& path);  // throws kIo
  static H5File open_read(const std::string& path);   // throws as File::open_read; kCorruptData: no whole HDF5 file

  H5File(H5File&& other) noexcept : id_(other.id_), writable_(other.writable_), path_(std::move(other.path_)) {
    other.id_ = -1;
  }
  H5File& operator=(H5File&&) = delete;
  ~H5File();

  // Objects are named by absolute path ("/model/x"). Each throws kIo in a file being written, kCorruptData otherwise.
  void create_group(const std::string& path);
  // Contiguous, allocated now, data at a multiple of 4096 from 64 KiB on; returns the offset of its first byte.
  // bf16 is stored as uint16.
  int64_t create_dataset(const std::string& path, DType dtype, const Dims& shape);

  // Chunks of chunk_elements in one dimension, behind the filters shuffle and zstd (32015); no room yet.
  void create_chunked_dataset(const std::string& path, DType dtype, int64_t elements, int64_t chunk_elements);
  // A place for chunk `index` as it is stored: a frame of ChunkEncoder, or (raw) the whole chunk as it is. The caller
  // writes the bytes there, at any time, this object closed or not.
  H5Chunk place_chunk(const std::string& path, int64_t index, std::span<const std::byte> stored, bool raw);

  void create_attribute(const std::string& object, const std::string& name, const std::string& text);
  void create_attribute(const std::string& object, const std::string& name, std::span<const int64_t> values);
  void create_attribute(const std::string& object, const std::string& name, std::span<const uint64_t> values);
  // Of the length it was created with.
  void overwrite_attribute(const std::string& object, const std::string& name, std::span<const uint64_t> values);

  // Reading. nullopt: no such object or attribute.
  std::optional<H5DatasetInfo> dataset(const std::string& path) const;
  std::optional<std::vector<uint64_t>> attribute_values(const std::string& object, const std::string& name) const;
  std::optional<std::string> attribute_text(const std::string& object, const std::string& name) const;

  void close();  // throws kIo; the destructor does not

 private:
  H5File(int64_t id, bool writable, std::string path) : id_(id), writable_(writable), path_(std::move(path)) {}
  uint64_t file_bytes() const;
  [[noreturn]] void fail(const std::string& what) const;

  int64_t id_ = -1;  // hid_t
  bool writable_ = false;
  std::string path_;
};

}  // namespace ms::core
