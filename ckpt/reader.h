// Reads a native checkpoint: a Source over its manifest and rank files.
//
// Values are read at the byte offsets stored in the (self-hashed) manifest and checked against its chunk hashes before
// they are returned. The HDF5 structure is not used here; it is for other readers, and `msckpt verify` checks it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ckpt/source.h"

namespace ms::ckpt {

// path: a checkpoint root (its newest valid generation is opened, see commit.h) or one iter_* directory.
// Throws kNotFound if there is no checkpoint, kCorruptData if the manifest is invalid or a file has another size than
// it states.
std::unique_ptr<Source> open_native(const std::filesystem::path& path);

// True if `path` is a native checkpoint, valid or damaged: it, or an iter_* directory in it, contains manifest.json (a
// name that no other format uses).
bool is_native(const std::filesystem::path& path);

}  // namespace ms::ckpt
