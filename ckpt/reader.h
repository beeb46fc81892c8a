// Reads a native checkpoint: one Source over its manifest and rank files.
//
// Values are taken at the byte offsets that the (self-hashed) manifest gives, and checked against its chunk hashes
// before they are returned; the HDF5 structure is for others to read, and for `msckpt verify` to compare.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ckpt/source.h"

namespace ms::ckpt {

// path: a checkpoint root (the newest valid generation is taken, see commit.h) or one iter_* directory.
// Throws kNotFound if there is no checkpoint, kCorruptData if the manifest or a file's size contradicts.
std::unique_ptr<Source> open_native(const std::filesystem::path& path);

// True if `path` is one of ours, whole or damaged: it, or an iter_* directory in it, has a manifest.json (a name that
// no other format uses).
bool is_native(const std::filesystem::path& path);

}  // namespace ms::ckpt
