// Reads a torch.save file: a pickle and the storages that its tensors are views of, in an archive or, before PyTorch
// 1.6, concatenated (legacy_file.h).
//
// Nothing in the file is executed (pickle.h). Each tensor is checked against the record that it refers to. Sources for
// the arguments of the pickled calls: PyTorch's torch/_utils.py (_rebuild_tensor_v2, _rebuild_tensor_v3,
// _rebuild_parameter), torch/_tensor.py (_rebuild_from_type_v2) and torch/serialization.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convert/safetensors.h"
#include "convert/torch/legacy_file.h"
#include "convert/torch/pickle.h"
#include "convert/torch/record_checks.h"
#include "convert/torch/zip_reader.h"

namespace ms::convert {

// A view of a storage; offset, shape and stride are in elements.
struct TorchTensor {
  SafetensorsDType dtype = SafetensorsDType::kF32;
  std::vector<uint64_t> shape, stride;
  uint64_t offset = 0;
  size_t record = 0;  // index of the archive's record

  uint64_t elements() const;
  uint64_t size_bytes() const { return elements() * bits_of(dtype) / 8; }
  bool is_dense() const;  // row-major without gaps
};

class TorchFile {
 public:
  // Throws kNotFound, kIo, kCorruptData; kUnsupported for a big-endian file. known: the checks of the same file, opened
  // before; null: none. Throws kCorruptData if the file has changed since.
  explicit TorchFile(ArchiveRange range, std::shared_ptr<RecordChecks> known = nullptr);
  explicit TorchFile(const std::string& path) : TorchFile(ArchiveRange::whole(path)) {}
  ~TorchFile();

  const std::string& where() const { return archive_.where(); }
  PickleValue root() const { return pickle_->root(); }
  const ZipReader& archive() const { return archive_; }

  // Returns the tensor or parameter that `value` is; nullopt for anything else. Throws kCorruptData if the storage does
  // not contain what the tensor refers to, kUnsupported for an element type that SafetensorsDType lacks.
  std::optional<TorchTensor> tensor(PickleValue value) const;

  // Reads elements from `first` on, in row-major order, until `out` is full. Thread-safe. The first use of a storage
  // compares all of it with its CRC; in one-pass mode large reads do so together. Throws kCorruptData, kIo.
  void read(const TorchTensor& tensor, uint64_t first, std::span<std::byte> out) const;
  // As read(), but without the CRC check: for a look at a few elements of a large storage that read() will check later.
  void peek(const TorchTensor& tensor, uint64_t first, std::span<std::byte> out) const;
  // Which records have been compared with their CRC. May outlive this object, to be passed on when the file is
  // reopened.
  const std::shared_ptr<RecordChecks>& checks() const { return checks_; }
  // See ckpt::Source.
  void begin_one_pass() const { checks_->set_one_pass(true); }
  void end_one_pass(bool all) const;

 private:
  struct Types;
  TorchFile(ArchiveRange range, LegacyTorchFile legacy, std::shared_ptr<RecordChecks> known);  // null pickle: a ZIP
  TorchTensor view(PickleValue storage, PickleValue offset, PickleValue size, PickleValue stride,
                   std::optional<SafetensorsDType> dtype) const;

  ZipReader archive_;
  std::string prefix_;  // of all record names, with its slash
  std::unique_ptr<Pickle> pickle_;
  std::unique_ptr<Types> types_;  // element type that each record was seen with
  std::shared_ptr<RecordChecks> checks_;
};

}  // namespace ms::convert
