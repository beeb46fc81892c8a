#include "train/loop/flag_differences.h"

#include <algorithm>

#include "core/comm/agree.h"
#include "core/error.h"

namespace ms::train {

std::string flag_differences(const nlohmann::json& own, const nlohmann::json& other) {
  constexpr int kShown = 4;
  std::string text;
  int count = 0;
  for (const auto& [group, fields] : own.items()) {
    const nlohmann::json others = other.value(group, nlohmann::json::object());
    for (const auto& [field, value] : fields.items()) {
      const nlohmann::json its = others.value(field, nlohmann::json());
      if (its == value || ++count > kShown) continue;
      std::string flag = field;
      std::ranges::replace(flag, '_', '-');
      text += core::cat(count > 1 ? "; --" : "--", flag, ' ', core::dump_json(value), " and ", core::dump_json(its));
    }
  }
  return count > kShown ? core::cat(text, "; and ", count - kShown, " more") : text;
}

void require_same_flags(core::Communicator& group, const nlohmann::json& own, const RunFingerprints& fingerprints) {
  const nlohmann::json all = {own, fingerprints.grid, fingerprints.clusters};
  const std::string text = all.dump(), of_rank_0 = group.bcast_string(text, 0);
  core::collectively(group, "start", [&] {
    if (of_rank_0 == text) return;
    const nlohmann::json others = nlohmann::json::parse(of_rank_0);
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        others[0] != own
            ? core::cat("this rank's configuration differs from rank 0's: ", flag_differences(own, others[0]))
        : others[1] != all[1]
            ? "the file of --attention-mask-grid shows other cells to this rank than to rank 0. Give all machines the "
              "same file"
            : "this rank would plan adaptive context parallelism differently from rank 0: its program finds other "
              "clusters in the same mask. Start the same build on all ranks, or give --adaptive-cp-only-reschedule");
  });
}

}  // namespace ms::train
