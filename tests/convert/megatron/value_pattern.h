// The value that tests/data/make_megatron_tree.py gives each element: a function of the parameter's canonical name, the
// role and the element's index in the global tensor, so that a misplaced element shows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/sharded_tensor.h"

namespace ms::test {

// splitmix64 of the index, seeded with FNV-1a of "role:name".
inline uint64_t mixed(std::string_view role, std::string_view key, int64_t index) {
  uint64_t seed = 0xcbf29ce484222325u;
  for (const char c : core::cat(role, ":", key)) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  uint64_t z = seed + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// kParam is kMaster rounded to bf16; the parameters of an fp32 model are masters.
inline float pattern(core::TensorRole role, std::string_view key, int64_t index) {
  double value = 1;
  if (role == core::TensorRole::kParam || role == core::TensorRole::kMaster) {
    const uint64_t z = mixed("param", key, index);
    value += static_cast<double>(z >> 1 & 127) / 128;
    if (role == core::TensorRole::kMaster) value += (static_cast<double>((z >> 8) % 201) - 100) / 65536;
    return static_cast<float>(z & 1 ? -value : value);
  }
  const uint64_t z = mixed(core::role_name(role), key, index);
  value += static_cast<double>(z & 0x7fffff) / (1 << 23);
  return static_cast<float>(role == core::TensorRole::kExpAvg && z >> 63 ? -value : value);
}

}  // namespace ms::test
