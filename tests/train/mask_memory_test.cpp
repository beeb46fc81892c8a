// No mask is an array: of no tag has a step a block of as many elements as there are scores, whatever the mask, alone
// and on ranks that share sequences. Blocks grow as the length does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string>
#include <vector>

#include "tests/train/model/rank.h"
#include "train/loop/step.h"

namespace ms::train {
namespace {

constexpr int64_t kLength = 1024;
constexpr int32_t kEod = 256;

// The largest block of each tag.
class LargestBlocks : public core::Arena::Observer {
 public:
  using Bytes = std::array<int64_t, core::kNumMemoryTags>;
  void on_change(const void*, int64_t delta_bytes, core::MemoryTag tag, int64_t) override {
    const std::scoped_lock lock(mutex_);
    int64_t& most = largest_[static_cast<size_t>(tag)];
    most = std::max(most, delta_bytes);
  }
  const Bytes& largest() const { return largest_; }

 private:
  std::mutex mutex_;
  Bytes largest_{};
};

// Samples of documents of 61 tokens.
class Documents : public SampleSource {
 public:
  explicit Documents(int64_t seq) : seq_(seq) {}
  int64_t size() const override { return 4; }
  int64_t seq_length() const override { return seq_; }
  void sample(int64_t index, std::span<int32_t> out) const override {
    int64_t position = index * seq_;
    for (int32_t& token : out) token = ++position % 61 == 0 ? kEod : static_cast<int32_t>(position * 37 % 256);
  }

 private:
  int64_t seq_;
};

struct Mask {
  const char* name;
  void (*set)(TrainerConfig&);
  bool depends_on_distance = false;
};
constexpr Mask kMasks[] = {
    {"causal", [](TrainerConfig&) {}},
    {"band", [](TrainerConfig& config) { config.model.sliding_window = 100; }, true},
    {"prefix",
     [](TrainerConfig& config) {
       config.training.sparse_mode = 5;
       config.training.prefix_length = config.training.seq_length / 4;
     }},
    {"grid",
     [](TrainerConfig& config) {
       config.training.attention_mask_grid = MS_TEST_DATA "/train/mask_grids/causal_8.txt";
     }},
    {"general grid",
     [](TrainerConfig& config) {
       config.training.attention_mask_grid = MS_TEST_DATA "/train/mask_grids/general_16.txt";
       config.training.attention_mask_type = "general";
     }},
    {"packed", [](TrainerConfig& config) { config.training.reset_attention_mask = true; }},
    {"packed, of two samples",
     [](TrainerConfig& config) {
       config.training.reset_attention_mask = config.training.reset_position_ids = true;
       config.training.micro_batch_size = 2;
     }},
};
const test::TinyLayout kLayouts[] = {{},
                                     {1, 1, 1, 0, false, 1, "", "", 2, "a2a"},
                                     {1, 1, 1, 0, false, 1, "", "", 2, "all_gather"},
                                     {1, 1, 1, 0, false, 1, "", "", 2, "p2p"},
                                     {1, 1, 1, 0, false, 1, "", "", 2, "adaptive"}};

TrainerConfig config_of(const test::TemporaryFolder& folder, const test::TinyLayout& layout, const Mask& mask,
                        int64_t length) {
  TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.model.num_layers = 1;
  config.model.num_attention_heads = 2;
  config.model.num_query_groups = 2;
  config.training.seq_length = length;
  config.training.loss_chunk_size = 64;
  mask.set(config);
  config.training.global_batch_size = config.training.micro_batch_size;
  return config;
}

// Of the ranks of a step.
LargestBlocks::Bytes largest_blocks(const TrainerConfig& config, int ranks) {
  std::vector<LargestBlocks::Bytes> of_ranks(static_cast<size_t>(ranks));
  test::run_thread_ranks(ranks, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    LargestBlocks blocks;
    GptStage stage(*rank.state, *rank.parameters);
    StepRunner runner(*rank.state, stage);
    rank.parameters->initialize(5, [](const Parameter&, const core::TensorView&) {});
    rank.parameters->zero_grads();
    std::vector<Microbatch> batch(1);
    for (int64_t sample = 0; sample < config.training.micro_batch_size; ++sample) batch[0].samples.push_back(sample);
    const bool resets = config.training.reset_attention_mask;
    read_microbatch(Documents(config.training.seq_length),
                    {.eod = kEod, .reset_attention_mask = resets, .reset_position_ids = resets}, 257, batch[0]);
    const layout::SampleMask sample_mask = train::sample_mask(rank.config.training);
    apply_mask(sample_mask, batch[0]);
    take_rows(
        sequence_share(config.parallel, batch[0].seq, rank.state->groups.at.cp, batch[0].document_ends, sample_mask),
        batch[0]);
    rank.arena.set_observer(&blocks);
    runner.train(batch, 1);
    rank.arena.set_observer(nullptr);
    of_ranks[static_cast<size_t>(endpoint.rank())] = blocks.largest();
  });
  LargestBlocks::Bytes largest{};
  for (const LargestBlocks::Bytes& of : of_ranks)
    for (size_t tag = 0; tag < of.size(); ++tag) largest[tag] = std::max(largest[tag], of[tag]);
  return largest;
}

constexpr int64_t kScores = 4 * kLength * kLength;  // of a sample of the longer ones

// Whether a block has an element for each score, or grows faster than the length.
std::string squares(const LargestBlocks::Bytes& shorter, const LargestBlocks::Bytes& longer) {
  for (size_t tag = 0; tag < longer.size(); ++tag) {
    if (longer[tag] < kScores && longer[tag] <= 2.1 * static_cast<double>(shorter[tag]) + 4096) continue;
    return core::cat(core::memory_tag_name(static_cast<core::MemoryTag>(tag)), ": the largest block has ", shorter[tag],
                     " bytes, with twice the tokens ", longer[tag]);
  }
  return "";
}

TEST(MaskMemory, HasNoBlockOfSquares) {
  const test::TemporaryFolder folder;
  for (const Mask& mask : kMasks) {
    for (const test::TinyLayout& layout : kLayouts) {
      if (mask.depends_on_distance && layout.context == "adaptive") continue;
      const auto blocks = [&](int64_t length) {
        return largest_blocks(config_of(folder, layout, mask, length), layout.ranks());
      };
      EXPECT_EQ(squares(blocks(kLength), blocks(2 * kLength)), "") << mask.name << ", " << layout.name();
    }
  }
}

// The test can fail: plain operators have all scores of a head in memory.
TEST(MaskMemory, SeesTheScoresOfPlainOperators) {
  const test::TemporaryFolder folder;
  const auto blocks = [&](int64_t length) {
    TrainerConfig config = config_of(folder, {}, kMasks[0], length);
    config.training.optimization_level = config.training.loss_chunk_size = 0;
    return largest_blocks(config, 1);
  };
  const LargestBlocks::Bytes longer = blocks(2 * kLength);
  EXPECT_THAT(squares(blocks(kLength), longer), testing::StartsWith("tmp: "));
  EXPECT_GE(*std::ranges::max_element(longer), kScores);
}

}  // namespace
}  // namespace ms::train
