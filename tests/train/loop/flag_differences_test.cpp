// Ranks with other flags or fingerprints than rank 0: all of them throw, and name what differs.
#include "train/loop/flag_differences.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/comm/agree.h"
#include "core/error.h"
#include "tests/support/thread_comm.h"
#include "train/features/context_parallel.h"

namespace ms::train {
namespace {

// What ranks 0, 1, .. throw, where the last one has these flags and fingerprints.
std::vector<std::string> errors_of(const nlohmann::json& flags, const RunFingerprints& fingerprints) {
  constexpr int kRanks = 3;
  std::vector<std::string> errors(kRanks);
  test::run_thread_ranks(kRanks, [&](core::Endpoint& endpoint) {
    core::Communicator world(endpoint, "world", {0, 1, 2}, 0);
    const bool is_last = endpoint.rank() == kRanks - 1;
    try {
      require_same_flags(world, is_last ? flags : nlohmann::json{{"optimizer", {{"lr", 0.5}}}},
                         is_last ? fingerprints : RunFingerprints{"17", "4"});
    } catch (const core::AgreedError& e) {
      errors[static_cast<size_t>(endpoint.rank())] = e.what();
    }
  });
  return errors;
}

TEST(FlagDifferences, AllRanksThrowWhatOneHasOtherwise) {
  const nlohmann::json same = {{"optimizer", {{"lr", 0.5}}}}, other = {{"optimizer", {{"lr", 0.25}}}};
  for (const std::string& error : errors_of(same, {"17", "4"})) EXPECT_EQ(error, "");
  for (const std::string& error : errors_of(other, {"17", "5"}))
    EXPECT_NE(error.find("configuration differs from rank 0's: --lr 0.25 and 0.5"), std::string::npos) << error;
  for (const std::string& error : errors_of(same, {"18", "4"}))
    EXPECT_NE(error.find("finds other clusters"), std::string::npos) << error;
  for (const std::string& error : errors_of(same, {"18", "5"}))
    EXPECT_NE(error.find("--attention-mask-grid shows other cells to this rank"), std::string::npos) << error;
}

TEST(FlagDifferences, ClustersHaveAFingerprintWhereTheyAreSearched) {
  ContextParallelConfig config{.context_parallel_size = 2, .context_parallel_algo = "adaptive_cp_algo"};
  const std::string fingerprint = cluster_fingerprint(config);
  EXPECT_NE(fingerprint, "");
  EXPECT_EQ(cluster_fingerprint(config), fingerprint);
  config.adaptive_cp_only_reschedule = true;
  EXPECT_EQ(cluster_fingerprint(config), "");
  EXPECT_EQ(cluster_fingerprint({.context_parallel_size = 2, .context_parallel_algo = "megatron_cp_algo"}), "");
}

}  // namespace
}  // namespace ms::train
