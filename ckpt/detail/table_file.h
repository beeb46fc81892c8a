// tensors.bin: the manifest's table of tensors and boxes, packed (FORMAT.md, section 3.1).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ckpt/manifest.h"

namespace ms::ckpt::detail {

// Adds a tensor that a manifest lists. Throws kCorruptData, naming `where`, if it is listed twice.
int32_t add_listed_tensor(Manifest& manifest, std::string_view name, core::TensorRole role, core::DType dtype,
                          std::span<const int64_t> shape, uint64_t logical_xxh3, std::string_view where);

// Adds a box of the tensor added last. Throws kCorruptData if it does not lie in the tensor, is empty, or has another
// number of hashes than chunks. What it says of its file is checked when all files are known.
void add_listed_box(Manifest& manifest, int32_t tensor, std::span<const int64_t> offset, std::span<const int64_t> shape,
                    int64_t file, int64_t copy, int64_t at, std::span<const uint64_t> chunks, bool compressed,
                    std::string_view where);

// Writes the manifest's table to a new file, fsynced; returns its entry for `files`, hashed as every file's bytes
// outside of tensors are.
ManifestFile write_table(const std::string& path, const Manifest& manifest);

// Reads the table into the manifest, a MiB at a time. Throws kCorruptData if the file is not as `entry` and the counts
// say, kNotFound, kIo.
void read_table(const std::string& path, const ManifestFile& entry, int64_t tensors, int64_t boxes, Manifest& manifest);

}  // namespace ms::ckpt::detail
