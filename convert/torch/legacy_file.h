// A file of torch.save before PyTorch 1.6, which is no archive: five pickles one behind the other, and the storages.
//
//   a magic number, protocol 1001, facts of the machine, the object, the keys of its storages
//   of each key in that order: i64 elements, and those
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
  std::unique_ptr<Pickle> pickle;         // of the object
  std::vector<ZipReader::Entry> records;  // "archive/data/KEY", as in an archive
};

// Throws kCorruptData; kUnsupported for one of a big-endian machine, storages that are views of others, or an element
// type without a name here.
LegacyTorchFile read_legacy_torch_file(const ArchiveRange& range);

}  // namespace ms::convert
