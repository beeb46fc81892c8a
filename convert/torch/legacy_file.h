// Reads a torch.save file from before PyTorch 1.6, which is not an archive: five consecutive pickles, then the
// storages.
//
//   a magic number, protocol 1001, system information, the object, the keys of its storages
//   for each key in that order: an i64 element count, then the elements
//
// Source: PyTorch's torch/serialization.py (_legacy_save, _legacy_load).
#pragma once

#include <memory>
#include <vector>

#include "convert/torch/pickle.h"
#include "convert/torch/zip_reader.h"

namespace ms::convert {

bool is_legacy_torch_file(const ArchiveRange& range);

struct LegacyTorchFile {
  std::unique_ptr<Pickle> pickle;         // of the saved object
  std::vector<ZipReader::Entry> records;  // "archive/data/KEY", as in an archive
};

// Throws kCorruptData; kUnsupported for a big-endian file, storages that are views of others, and element types that
// SafetensorsDType lacks.
LegacyTorchFile read_legacy_torch_file(const ArchiveRange& range);

}  // namespace ms::convert
