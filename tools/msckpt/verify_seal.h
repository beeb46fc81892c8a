// msckpt verify for formats without hashes: checks what the format allows, and seals (ckpt/seal.h).
#pragma once

#include <string>

namespace ms::tools::msckpt {

struct SealFlags {
  std::string seal;  // --seal: the file; empty: the folder's own, if it has one
  bool fast = false;
};

// True for a checkpoint of another format. False for native ones, and for damaged ones on which only the native verify
// can report.
bool is_foreign(const std::string& path);

// Prints the result for one path. Returns false if something is wrong.
bool verify_by_seal(const SealFlags& flags, const std::string& path, int threads, bool as_json);

}  // namespace ms::tools::msckpt
