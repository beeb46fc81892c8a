// Which local checkpoint all ranks can go on from: a pure function of what each of them has found in its folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/manifest.h"

namespace ms::ckpt {

inline constexpr const char* kLocalKey = "local";  // in CheckpointInfo::common, of parts alone

// One rank's part of a local checkpoint, in some rank's folder.
struct LocalPart {
  int rank = 0;   // whose state it is
  int ranks = 0;  // of the job that saved it
  int64_t iteration = 0;
  std::string save;    // which save of which run: parts of different ones do not belong together
  std::string shards;  // fingerprint of the rank's layout and shards
  std::filesystem::path path;
};

// From and to the manifest's common state; nothing if the generation is no part of a local checkpoint.
nlohmann::json local_to_json(const LocalPart& part);
std::optional<LocalPart> local_part(const Manifest& manifest, const std::filesystem::path& path);

// What one rank tells the others: how its shards are laid out now, the parts in its folder (without their paths), what
// is wrong with others.
struct LocalOffer {
  std::string expects;
  std::vector<LocalPart> parts;
  std::vector<std::string> notes;
};
std::string encode_offer(const LocalOffer& offer);
LocalOffer decode_offer(const std::string& text);

struct LocalChoice {
  int64_t iteration = -1;  // -1: there is none
  std::string save;
  std::vector<int> holder;         // of each rank's part: the rank itself if it has it
  std::vector<std::string> notes;  // why newer ones are passed over
};
// The newest beyond newer_than of which every rank's part is somewhere, by offers of all ranks.
LocalChoice choose_local(std::span<const LocalOffer> offers, int64_t newer_than);

}  // namespace ms::ckpt
