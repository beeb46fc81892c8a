// Writes a torch.save file: a pickle and the storages that its tensors are views of (torch_file.h reads it).
//
// The sizes of the storages are known in advance, so the archive is laid out before any data arrives, and storages are
// written by position, in any order, by any number of threads, without being buffered or read back. The same pickle and
// storages give the same bytes. An archive may be a part of a larger file (a DCP payload).
// Source: PyTorch's torch/serialization.py (_save) and torch/_utils.py (_rebuild_tensor_v2, _rebuild_tensor_v3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "convert/safetensors.h"
#include "convert/torch/crc32.h"
#include "convert/torch/pickle_writer.h"
#include "convert/torch/zip_layout.h"
#include "core/dims.h"

namespace ms::convert {

// A dense tensor in a storage that other tensors may share.
struct TorchView {
  SafetensorsDType dtype = SafetensorsDType::kF32;
  size_t storage = 0;            // index of the storage
  int64_t storage_elements = 0;  // total elements of the storage
  int64_t first = 0;             // first element of the view in the storage
  core::Dims shape;
};

void write_torch_tensor(PickleWriter& pickle, const TorchView& view);
// Writes torch.float32 and the like.
void write_torch_dtype(PickleWriter& pickle, SafetensorsDType dtype);

class TorchWriter {
 public:
  // storage_bytes: sizes of storages 0, 1, ..
  TorchWriter(std::string pickle, std::span<const int64_t> storage_bytes);

  int64_t size_bytes() const { return layout_.archive_bytes(); }

  // Writes bytes to the file at offset `at` from the start of the archive.
  using Output = std::function<void(std::span<const std::byte> bytes, int64_t at)>;

  // Writes the bytes [offset, offset + bytes.size()) of a storage. Bytes that are never written count as zeros, which
  // is what a hole in the file reads as. Each byte may be written once at most. Thread-safe.
  void write(const Output& output, size_t storage, int64_t offset, std::span<const std::byte> bytes);
  // Returns the offset of a storage byte from the start of the archive.
  int64_t place_of(size_t storage, int64_t offset) const;
  // Use instead of write() for bytes that are already in the file.
  void keep(size_t storage, int64_t offset, std::span<const std::byte> bytes) { crcs_[storage].add(offset, bytes); }
  // Writes everything besides the storages. Call after all of the above.
  void finish(const Output& output);

 private:
  std::string pickle_;
  ZipLayout layout_;
  std::deque<Crc32OfParts> crcs_;  // one per storage
};

// Makes a small archive in memory.
std::string make_torch_archive(std::string pickle, std::span<const std::string> storages);

}  // namespace ms::convert
