// Writes a file of torch.save: a pickle and the storages that its tensors are views of (torch_file.h reads it).
//
// The sizes of the storages are known beforehand, so the archive is laid out before the first byte of them comes, and
// they are written by position, in any order, by any number of threads, without being held or read back. The same
// pickle and storages make the same bytes. An archive may lie in a larger file (a DCP payload).
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

// A dense tensor in a storage, which others may share.
struct TorchView {
  SafetensorsDType dtype = SafetensorsDType::kF32;
  size_t storage = 0;            // its index
  int64_t storage_elements = 0;  // all of the storage's
  int64_t first = 0;             // element of the storage
  core::Dims shape;
};

void write_torch_tensor(PickleWriter& pickle, const TorchView& view);
// torch.float32.
void write_torch_dtype(PickleWriter& pickle, SafetensorsDType dtype);

class TorchWriter {
 public:
  // storage_bytes: of the storages 0, 1, ..
  TorchWriter(std::string pickle, std::span<const int64_t> storage_bytes);

  int64_t size_bytes() const { return layout_.archive_bytes(); }

  // Puts bytes into the file, `at` bytes behind the beginning of the archive.
  using Output = std::function<void(std::span<const std::byte> bytes, int64_t at)>;

  // The bytes [offset, offset + bytes.size()) of a storage. What never comes is taken for zeros, as `output` reads it
  // back where nothing is written. Each byte at most once. Thread-safe.
  void write(const Output& output, size_t storage, int64_t offset, std::span<const std::byte> bytes);
  // Where a byte of a storage lies, behind the beginning of the archive.
  int64_t place_of(size_t storage, int64_t offset) const;
  // Instead of write(): these bytes are there already.
  void keep(size_t storage, int64_t offset, std::span<const std::byte> bytes) { crcs_[storage].add(offset, bytes); }
  // After all of that: everything besides the storages.
  void finish(const Output& output);

 private:
  std::string pickle_;
  ZipLayout layout_;
  std::deque<Crc32OfParts> crcs_;  // of the storages
};

// A small archive, in memory.
std::string make_torch_archive(std::string pickle, std::span<const std::string> storages);

}  // namespace ms::convert
