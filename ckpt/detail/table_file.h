// tensors.bin: the manifest's table of tensors and boxes in packed form (FORMAT.md, section 3.1).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ckpt/manifest.h"

namespace ms::ckpt::detail {

// Adds a tensor from a manifest. Throws kCorruptData, naming `where`, if it is listed twice.
int32_t add_listed_tensor(Manifest& manifest, std::string_view name, core::TensorRole role, core::DType dtype,
                          std::span<const int64_t> shape, uint64_t logical_xxh3, std::string_view where);

// Adds a box of the tensor added last. Throws kCorruptData if it does not lie in the tensor, is empty, or has another
// number of hashes than chunks. Its file and offset are checked later, when all files are known.
void add_listed_box(Manifest& manifest, int32_t tensor, std::span<const int64_t> offset, std::span<const int64_t> shape,
                    int64_t file, int64_t copy, int64_t at, std::span<const uint64_t> chunks, bool compressed,
                    std::string_view where);

// Writes the manifest's table to a new file and fsyncs it; returns its entry for `files`, hashed as the bytes outside
// of tensors are in every file.
ManifestFile write_table(const std::string& path, const Manifest& manifest);

// Reads the table into the manifest, one MiB at a time. Throws kCorruptData if the file does not match `entry` and the
// counts, kNotFound, kIo.
void read_table(const std::string& path, const ManifestFile& entry, int64_t tensors, int64_t boxes, Manifest& manifest);

}  // namespace ms::ckpt::detail
