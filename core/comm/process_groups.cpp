#include "core/comm/process_groups.h"

#include <numeric>

#include "core/error.h"

namespace ms::core {
namespace {

std::vector<int> all_ranks(const RankGrid& grid) {
  std::vector<int> ranks(static_cast<size_t>(grid.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

ProcessGroups::ProcessGroups(Endpoint& endpoint, const RankGrid& sizes)
    : grid(sizes),
      at(sizes.coordinates(endpoint.rank())),
      world(endpoint, "world", all_ranks(sizes), kWorldContext),
      tp(endpoint, "tp", sizes.group(endpoint.rank(), RankGrid::kTp), kTpContext),
      pp(endpoint, "pp", sizes.group(endpoint.rank(), RankGrid::kPp), kPpContext),
      dp_cp(endpoint, "dp_cp", sizes.group(endpoint.rank(), RankGrid::kDp | RankGrid::kCp), kDpCpContext),
      model(endpoint, "model", sizes.group(endpoint.rank(), RankGrid::kTp | RankGrid::kPp), kModelContext),
      checkpoint(endpoint, "checkpoint", all_ranks(sizes), kCheckpointContext) {
  MS_CHECK(endpoint.size() == sizes.world_size(), "grid of ", sizes.world_size(), " ranks on ", endpoint.size());
  if (sizes.pp > 1 && (is_first_stage() || is_last_stage())) {
    const std::vector<int>& stages = pp.world_ranks();
    embedding.emplace(endpoint, "embedding", std::vector<int>{stages.front(), stages.back()}, kEmbeddingContext);
  }
}

}  // namespace ms::core
