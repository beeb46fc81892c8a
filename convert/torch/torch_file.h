// A file of torch.save: a pickle and the storages that its tensors are views of, in an archive or, before PyTorch 1.6,
// one behind the other (legacy_file.h).
//
// Nothing in it is executed (pickle.h). What a tensor claims is checked against the record that it names: PyTorch's
// torch/_utils.py (_rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_parameter), torch/_tensor.py
// (_rebuild_from_type_v2) and torch/serialization.py say what the
// arguments are.
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

// A view of a storage, in elements.
struct TorchTensor {
  SafetensorsDType dtype = SafetensorsDType::kF32;
  std::vector<uint64_t> shape, stride;
  uint64_t offset = 0;
  size_t record = 0;  // of the archive

  uint64_t elements() const;
  uint64_t size_bytes() const { return elements() * bits_of(dtype) / 8; }
  bool is_dense() const;  // row-major without gaps
};

class TorchFile {
 public:
  // Throws kNotFound, kIo, kCorruptData; kUnsupported for a file of a big-endian machine.
  // known: of the same file, opened before; null: nothing is. Throws kCorruptData too if it is another file now.
  explicit TorchFile(ArchiveRange range, std::shared_ptr<RecordChecks> known = nullptr);
  explicit TorchFile(const std::string& path) : TorchFile(ArchiveRange::whole(path)) {}
  ~TorchFile();

  const std::string& where() const { return archive_.where(); }
  PickleValue root() const { return pickle_->root(); }
  const ZipReader& archive() const { return archive_; }

  // The tensor or parameter that a value is; nothing if it is something else. Throws kCorruptData for one that claims
  // what its storage does not hold, kUnsupported for an element type without a name here.
  std::optional<TorchTensor> tensor(PickleValue value) const;

  // The elements from `first` on, in row-major order, as many as `out` holds. Thread-safe. The first use of a storage
  // checks all of it against its CRC, or, in one pass, large reads do it together; throws kCorruptData, kIo.
  void read(const TorchTensor& tensor, uint64_t first, std::span<std::byte> out) const;
  // The same without the CRC, for a look at few elements of a large storage that read() will check.
  void peek(const TorchTensor& tensor, uint64_t first, std::span<std::byte> out) const;
  // Which records have been compared with their CRC; outlives this object where the file is opened again.
  const std::shared_ptr<RecordChecks>& checks() const { return checks_; }
  // As ckpt::Source.
  void begin_one_pass() const { checks_->set_one_pass(true); }
  void end_one_pass(bool all) const;

 private:
  struct Types;
  TorchFile(ArchiveRange range, LegacyTorchFile legacy, std::shared_ptr<RecordChecks> known);  // no pickle: an archive
  TorchTensor view(PickleValue storage, PickleValue offset, PickleValue size, PickleValue stride,
                   std::optional<SafetensorsDType> dtype) const;

  ZipReader archive_;
  std::string prefix_;  // of all records, with its slash
  std::unique_ptr<Pickle> pickle_;
  std::unique_ptr<Types> types_;  // that each record is seen as
  std::shared_ptr<RecordChecks> checks_;
};

}  // namespace ms::convert
