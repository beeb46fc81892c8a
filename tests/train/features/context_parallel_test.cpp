// Of which positions each of the ranks that share sequences has cosines and sines. Runs against one rank:
// context_parallel_test.cpp, context_table_test.cpp.
#include "train/features/context_parallel.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/support/tiny_run.h"

namespace ms::train {
namespace {

using Change = std::function<void(TrainerConfig&)>;

constexpr int64_t kSeq = 32;

// first, count, first, count, ..
std::vector<int64_t> positions(int cp, const char* type, int rank, const Change& change) {
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path(), {.cp = cp, .context = type});
  config.training.seq_length = kSeq;
  config.model.max_position_embeddings = 2 * kSeq;
  change(config);
  std::vector<int64_t> positions;
  for (const layout::Segment& segment : rotary_positions(config, rank)) {
    positions.push_back(segment.first);
    positions.push_back(segment.count);
  }
  return positions;
}
void nothing(TrainerConfig&) {}

using List = std::vector<int64_t>;
const List kAll = {0, kSeq};

TEST(RotaryPositions, AreThoseOfARanksShare) {
  EXPECT_EQ(positions(1, "a2a", 0, nothing), kAll);
  EXPECT_EQ(positions(4, "a2a", 1, nothing), (List{8, 8}));
  EXPECT_EQ(positions(4, "p2p", 0, nothing), (List{0, 4, 28, 4}));
  EXPECT_EQ(positions(4, "p2p", 3, nothing), (List{12, 4, 16, 4}));
}

TEST(RotaryPositions, AreAllWhereMicrobatchesAreDividedDifferently) {
  const Change changes[] = {
      [](TrainerConfig& config) { config.training.reset_attention_mask = config.training.reset_position_ids = true; },
      [](TrainerConfig& config) { config.parallel.variable_seq_lengths = true; }};
  for (const Change& change : changes) EXPECT_EQ(positions(2, "p2p", 1, change), kAll);
  EXPECT_EQ(positions(2, "adaptive", 1, nothing), kAll);
}

TEST(RotaryPositions, ReachAsFarAsTextThatIsGenerated) {
  const List far = {0, 2 * kSeq};
  EXPECT_EQ(positions(2, "p2p", 1, [](TrainerConfig& config) { config.generate.generate = "text"; }), far);
}

}  // namespace
}  // namespace ms::train
