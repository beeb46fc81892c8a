#include "ckpt/detail/local_choice.h"

#include <algorithm>
#include <functional>
#include <map>

#include "core/error.h"
#include "core/io/json.h"

namespace ms::ckpt {
namespace {

using core::cat;
using nlohmann::json;

constexpr int64_t kMaxRanks = 1 << 24;

}  // namespace

json local_to_json(const LocalPart& part) {
  return {{"rank", part.rank}, {"ranks", part.ranks}, {"save", part.save}, {"shards", part.shards}};
}

std::optional<LocalPart> local_part(const Manifest& manifest, const std::filesystem::path& path) {
  const json& common = manifest.info.common;
  if (!common.is_object() || !common.contains(kLocalKey)) return std::nullopt;
  const json& local = common[kLocalKey];
  const int64_t rank = core::json_count(local, "rank", path.string());
  const int64_t ranks = core::json_count(local, "ranks", path.string());
  if (rank >= ranks || ranks > kMaxRanks) {
    throw core::Error(core::ErrorCode::kCorruptData, cat(path.string(), ": rank ", rank, " of ", ranks));
  }
  LocalPart part;
  part.rank = static_cast<int>(rank);
  part.ranks = static_cast<int>(ranks);
  part.iteration = manifest.info.iteration;
  part.save = core::json_string(local, "save", path.string());
  part.shards = core::json_string(local, "shards", path.string());
  part.path = path;
  return part;
}

std::string encode_offer(const LocalOffer& offer) {
  json parts = json::array();
  for (const LocalPart& part : offer.parts) {
    json one = local_to_json(part);
    one["iteration"] = part.iteration;
    parts.push_back(std::move(one));
  }
  return json{{"expects", offer.expects}, {"notes", offer.notes}, {"parts", parts}}.dump();
}

LocalOffer decode_offer(const std::string& text) {
  const json document = json::parse(text);
  LocalOffer offer;
  offer.expects = document.at("expects");
  offer.notes = document.at("notes");
  for (const json& one : document.at("parts")) {
    offer.parts.push_back({one.at("rank"), one.at("ranks"), one.at("iteration"), one.at("save"), one.at("shards"), {}});
  }
  return offer;
}

LocalChoice choose_local(std::span<const LocalOffer> offers, int64_t newer_than) {
  struct Candidate {
    bool fits = true;
    std::vector<int> holder;
  };
  const auto ranks = static_cast<int>(offers.size());
  std::map<std::pair<int64_t, std::string>, Candidate, std::greater<>> candidates;
  for (int at = 0; at < ranks; ++at) {
    for (const LocalPart& part : offers[static_cast<size_t>(at)].parts) {
      if (part.iteration <= newer_than) continue;
      Candidate& candidate = candidates[{part.iteration, part.save}];
      candidate.holder.resize(static_cast<size_t>(ranks), -1);
      if (part.ranks != ranks || part.rank >= ranks || part.shards != offers[static_cast<size_t>(part.rank)].expects) {
        candidate.fits = false;
        continue;
      }
      int& holder = candidate.holder[static_cast<size_t>(part.rank)];
      if (holder < 0 || at == part.rank) holder = at;
    }
  }
  LocalChoice choice;
  for (const auto& [key, candidate] : candidates) {
    const std::string passed_over = cat("local iteration ", key.first, " is passed over: ");
    if (!candidate.fits) {
      choice.notes.push_back(cat(passed_over, "it was saved with another layout of the ranks"));
      continue;
    }
    std::string missing;
    for (int rank = 0; rank < ranks; ++rank) {
      if (candidate.holder[static_cast<size_t>(rank)] < 0) missing += cat(missing.empty() ? "" : ", ", rank);
    }
    if (!missing.empty()) {
      choice.notes.push_back(cat(passed_over, "no rank has the part of rank ", missing));
      continue;
    }
    choice.iteration = key.first;
    choice.save = key.second;
    choice.holder = candidate.holder;
    break;
  }
  return choice;
}

}  // namespace ms::ckpt
