// Chooses the local checkpoint from which all ranks can resume: a pure function of what each rank found in its folder.
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

inline constexpr const char* kLocalKey = "local";  // in CheckpointInfo::common; only parts have it

// One rank's part of a local checkpoint, in some rank's folder.
struct LocalPart {
  int rank = 0;   // the rank whose state it is
  int ranks = 0;  // world size of the job that saved it
  int64_t iteration = 0;
  std::string save;    // identifies the save and its run: parts of different saves do not match
  std::string shards;  // fingerprint of the rank's layout and shards
  std::filesystem::path path;
};

// To and from the manifest's common state; nullopt if the generation is not part of a local checkpoint.
nlohmann::json local_to_json(const LocalPart& part);
std::optional<LocalPart> local_part(const Manifest& manifest, const std::filesystem::path& path);

// What one rank sends to the others: the fingerprint of its current shards, the parts in its folder (without their
// paths), and the problems of other generations there.
struct LocalOffer {
  std::string expects;
  std::vector<LocalPart> parts;
  std::vector<std::string> notes;
};
std::string encode_offer(const LocalOffer& offer);
LocalOffer decode_offer(const std::string& text);

struct LocalChoice {
  int64_t iteration = -1;  // -1: none
  std::string save;
  std::vector<int> holder;         // rank that has each rank's part; the rank itself if it does
  std::vector<std::string> notes;  // why newer ones are skipped
};
// Returns the newest iteration above newer_than for which every rank's part exists somewhere. offers: one per rank.
LocalChoice choose_local(std::span<const LocalOffer> offers, int64_t newer_than);

}  // namespace ms::ckpt
