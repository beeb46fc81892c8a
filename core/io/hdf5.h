// The part of HDF5 that checkpoints use: HDF5 determines the file layout, and we write the data.
//
// Datasets are contiguous, allocated at once and never filled, so their bytes are at a known offset and pwrite(2)
// writes them three times faster than H5Dwrite. Compressed datasets are chunked: HDF5 allocates each encoded chunk
// (chunk_codec.h) when it is told its size, so placing chunks in the same order gives the same file; their data is
// written with pwrite(2) too. Objects store no timestamps, so equal content gives equal bytes. Only one thread may use
// an H5File at a time (the library itself has a global lock).
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
  DType dtype = DType::kFp32;  // kUInt16 for bf16, which HDF5 does not have; an attribute records it
  Dims shape;
  int64_t offset = -1;  // of the first byte in the file; -1 if not contiguous
};

struct H5Chunk {
  int64_t offset = 0;  // of the stored bytes in the file
  int64_t bytes = 0;
};

class H5File {
 public:
  static H5File create(const std::string& path);      // replaces an existing file; throws kIo
  static H5File open_write(const std::string& path);  // throws kIo
  static H5File open_read(const std::string& path);   // throws like File::open_read; kCorruptData if incomplete

  H5File(H5File&& other) noexcept : id_(other.id_), writable_(other.writable_), path_(std::move(other.path_)) {
    other.id_ = -1;
  }
  H5File& operator=(H5File&&) = delete;
  ~H5File();

  // Objects are named by absolute path ("/model/x"). Functions throw kIo for a file being written, otherwise
  // kCorruptData.
  void create_group(const std::string& path);
  // A contiguous dataset, allocated now, aligned to 4096 bytes from 64 KiB on; returns the file offset of its data.
  // bf16 is stored as uint16.
  int64_t create_dataset(const std::string& path, DType dtype, const Dims& shape);

  // A one-dimensional dataset in chunks of chunk_elements with filters shuffle and zstd (32015); allocates nothing yet.
  void create_chunked_dataset(const std::string& path, DType dtype, int64_t elements, int64_t chunk_elements);
  // Allocates chunk `index` as it is stored: a frame of ChunkEncoder, or (raw) the unencoded chunk. The caller writes
  // the bytes at the returned offset at any time, also after this object is closed.
  H5Chunk place_chunk(const std::string& path, int64_t index, std::span<const std::byte> stored, bool raw);

  void create_attribute(const std::string& object, const std::string& name, const std::string& text);
  void create_attribute(const std::string& object, const std::string& name, std::span<const int64_t> values);
  void create_attribute(const std::string& object, const std::string& name, std::span<const uint64_t> values);
  // The number of values must be the same as at creation.
  void overwrite_attribute(const std::string& object, const std::string& name, std::span<const uint64_t> values);

  // Reading. nullopt: no such object or attribute.
  std::optional<H5DatasetInfo> dataset(const std::string& path) const;
  std::optional<std::vector<uint64_t>> attribute_values(const std::string& object, const std::string& name) const;
  std::optional<std::string> attribute_text(const std::string& object, const std::string& name) const;

  void close();  // throws kIo, unlike the destructor

 private:
  H5File(int64_t id, bool writable, std::string path) : id_(id), writable_(writable), path_(std::move(path)) {}
  uint64_t file_bytes() const;
  [[noreturn]] void fail(const std::string& what) const;

  int64_t id_ = -1;  // hid_t
  bool writable_ = false;
  std::string path_;
};

}  // namespace ms::core
