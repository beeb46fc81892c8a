// msckpt verify of formats without hashes of their own: what the format allows to check, and seals (ckpt/seal.h).
#pragma once

#include <string>

namespace ms::tools::msckpt {

struct SealFlags {
  std::string seal;  // --seal: the file; empty: the folder's own, if it has one
  bool fast = false;
};

// Is it a checkpoint of another format than ours? False too for what only `verify` of ours can say more about.
bool is_foreign(const std::string& path);

// Prints the result for one path. False if something is wrong.
bool verify_by_seal(const SealFlags& flags, const std::string& path, int threads, bool as_json);

}  // namespace ms::tools::msckpt
