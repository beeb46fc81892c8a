#include "train/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"

namespace ms::train {
namespace {

// Sample i contains i, i + 1, .. i + seq.
class CountingSource : public SampleSource {
 public:
  int64_t size() const override { return 1000; }
  int64_t seq_length() const override { return 3; }
  void sample(int64_t index, std::span<int32_t> out) const override {
    for (size_t s = 0; s < out.size(); ++s) out[s] = static_cast<int32_t>(index) + static_cast<int32_t>(s);
  }
};

std::vector<std::vector<int64_t>> samples_of(const SamplerPosition& position) {
  std::vector<Microbatch> batch;
  choose_samples(position, batch);
  std::vector<std::vector<int64_t>> samples;
  for (const Microbatch& microbatch : batch) samples.push_back(microbatch.samples);
  return samples;
}

Microbatch read(const std::vector<int64_t>& samples, const DocumentRules& eod = {}, int64_t vocab_size = 100) {
  Microbatch microbatch;
  microbatch.samples = samples;
  read_microbatch(CountingSource(), eod, vocab_size, microbatch);
  return microbatch;
}

TEST(Sampler, GlobalBatchIsTheSameForEveryLayout) {
  for (const int64_t consumed : {0, 24, 48}) {
    for (const int64_t micro_batch_size : {1, 2, 3}) {
      for (const int size : {1, 2, 4}) {
        std::vector<int64_t> batch;
        for (int rank = 0; rank < size; ++rank) {
          const SamplerPosition position{consumed, rank, size, micro_batch_size, 24 / (micro_batch_size * size)};
          ASSERT_EQ(position.global_batch_size(), 24);
          for (const auto& samples : samples_of(position)) {
            ASSERT_EQ(static_cast<int64_t>(samples.size()), micro_batch_size);
            batch.insert(batch.end(), samples.begin(), samples.end());
          }
        }
        std::sort(batch.begin(), batch.end());
        ASSERT_EQ(batch.size(), 24);
        for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(batch[static_cast<size_t>(i)], consumed + i);
      }
    }
  }
}

TEST(Sampler, MicrobatchesAreConsecutiveRunsAsInMegatron) {
  // Two ranks of micro-batch 2: rank 0 takes 10 11 | 14 15, rank 1 takes 12 13 | 16 17.
  const std::vector<std::vector<int64_t>> expected = {{12, 13}, {16, 17}};
  EXPECT_EQ(samples_of({10, 1, 2, 2, 2}), expected);
}

TEST(Sampler, CountsIn64Bits) {
  SamplerPosition position;
  position.consumed_samples = int64_t{3} << 40;
  position.data_parallel_rank = 3;
  position.data_parallel_size = 4;
  position.micro_batch_size = int64_t{1} << 10;
  position.num_microbatches = 2;
  const auto batches = samples_of(position);
  EXPECT_EQ(batches[0].front(), (int64_t{3} << 40) + 3 * 1024);
  EXPECT_EQ(batches[1].back(), (int64_t{3} << 40) + 8 * 1024 - 1);
}

TEST(Sampler, RefusesImpossiblePositions) {
  for (const SamplerPosition& bad :
       {SamplerPosition{-1, 0, 1, 1, 1}, SamplerPosition{0, 1, 1, 1, 1}, SamplerPosition{0, -1, 1, 1, 1},
        SamplerPosition{0, 0, 0, 1, 1}, SamplerPosition{0, 0, 1, 0, 1}, SamplerPosition{0, 0, 1, 1, 0}}) {
    EXPECT_THROW(samples_of(bad), core::Error);
  }
}

TEST(Microbatch, IsSequenceMajorAndLabelsAreTheFollowingTokens) {
  const Microbatch batch = read({5, 20});
  EXPECT_EQ(batch.batch, 2);
  EXPECT_EQ(batch.seq, 3);
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{5, 20, 6, 21, 7, 22}));
  EXPECT_EQ(batch.labels, (std::vector<int32_t>{6, 21, 7, 22, 8, 23}));
  EXPECT_EQ(batch.loss_mask, std::vector<float>(6, 1.0F));
}

TEST(Microbatch, EodMaskLossMasksTheInputToken) {
  const Microbatch batch = read({5, 20}, {.eod = 7, .mask_loss = true});
  EXPECT_EQ(batch.loss_mask, (std::vector<float>{1, 1, 1, 1, 0, 1}));
}

TEST(Microbatch, ReadOverwritesOldContents) {
  Microbatch batch =
      read({5, 20, 40}, {.eod = 7, .mask_loss = true, .reset_attention_mask = true, .reset_position_ids = true});
  batch.samples = {1, 30};
  read_microbatch(CountingSource(), {.eod = 2, .mask_loss = true}, 100, batch);
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{1, 30, 2, 31, 3, 32}));
  EXPECT_EQ(batch.labels, (std::vector<int32_t>{2, 31, 3, 32, 4, 33}));
  EXPECT_EQ(batch.loss_mask, (std::vector<float>{1, 1, 0, 1, 1, 1}));
  EXPECT_TRUE(batch.positions.empty());
  EXPECT_TRUE(batch.document_ends.empty());
}

// Tokens 5 6 7 and 20 21 22 and 3 4 5: the first sample's document ends behind its first token, the third's with it.
TEST(Microbatch, DocumentsEndBehindEod) {
  const std::vector<int64_t> samples = {5, 20, 3};
  const Microbatch apart = read(samples, {.eod = 5, .reset_attention_mask = true});
  EXPECT_EQ(apart.document_ends, (std::vector<int64_t>{1, 3, 6, 9}));
  EXPECT_TRUE(apart.positions.empty());
  EXPECT_EQ(apart.loss_mask, std::vector<float>(9, 1.0F));
  const Microbatch anew = read(samples, {.eod = 5, .reset_position_ids = true});
  EXPECT_EQ(anew.positions, (std::vector<int32_t>{0, 0, 0, 0, 1, 1, 1, 2, 2}));
  EXPECT_TRUE(anew.document_ends.empty());
  const Microbatch without = read(samples, {.reset_attention_mask = true, .reset_position_ids = true});
  EXPECT_EQ(without.document_ends, (std::vector<int64_t>{3, 6, 9}));
  EXPECT_EQ(without.positions, (std::vector<int32_t>{0, 0, 0, 1, 1, 1, 2, 2, 2}));
}

// The same, whose sample i has documents of 1 and 2 tokens if i is even, else one.
class SourceOfDocuments : public CountingSource {
 public:
  void document_ends(int64_t index, std::vector<int64_t>& ends) const override {
    ends = index % 2 == 0 ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{3};
  }
};

TEST(Microbatch, DocumentsEndWhereThoseOfTheDataSetDo) {
  Microbatch batch;
  batch.samples = {20, 5, 8};
  // 6 and 21 are within documents.
  for (const DocumentRules& rules :
       {DocumentRules{.inter_document_masking = true}, DocumentRules{.eod = 6, .inter_document_masking = true},
        DocumentRules{
            .eod = 21, .reset_attention_mask = true, .reset_position_ids = true, .inter_document_masking = true}}) {
    read_microbatch(SourceOfDocuments(), rules, 100, batch);
    EXPECT_EQ(batch.document_ends, (std::vector<int64_t>{1, 3, 6, 7, 9}));
    EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 0, 0, 0, 1, 0, 1, 2, 1}));
    EXPECT_EQ(batch.loss_mask, std::vector<float>(9, 1.0F));
  }
  read_microbatch(SourceOfDocuments(), {.eod = 6, .mask_loss = true, .inter_document_masking = true}, 100, batch);
  EXPECT_EQ(batch.loss_mask, (std::vector<float>{1, 1, 1, 1, 0, 1, 1, 1, 1}));
  // Padding belongs to the last document of its sample.
  read_microbatch(SourceOfDocuments(), {.inter_document_masking = true}, 100, batch, 5);
  EXPECT_EQ(batch.document_ends, (std::vector<int64_t>{1, 5, 10, 11, 15}));
}

// roll_tensor with cu_seqlens: the last position of each document has nothing that follows, again and again.
TEST(Microbatch, RollsWithinDocumentsOfTheDataSet) {
  Microbatch batch, once, twice;
  batch.samples = {20, 5};
  read_microbatch(SourceOfDocuments(), {.inter_document_masking = true}, 100, batch);
  roll(batch, once);
  EXPECT_EQ(once.tokens, (std::vector<int32_t>{0, 6, 22, 7, 0, 0}));
  EXPECT_EQ(once.labels, (std::vector<int32_t>{0, 7, 23, 8, 0, 0}));
  EXPECT_EQ(once.loss_mask, (std::vector<float>{0, 1, 1, 1, 0, 0}));
  roll(once, twice);
  EXPECT_EQ(twice.tokens, (std::vector<int32_t>{0, 7, 0, 0, 0, 0}));
  EXPECT_EQ(twice.loss_mask, (std::vector<float>{0, 1, 0, 0, 0, 0}));
  read_microbatch(SourceOfDocuments(), {}, 100, batch);
  roll(batch, once);
  EXPECT_EQ(once.tokens, (std::vector<int32_t>{21, 6, 22, 7, 0, 0}));
}

// What follows the last token of a sample does not depend on how much padding there is.
TEST(Microbatch, RollsWithoutPadding) {
  Microbatch batch, once, twice;
  batch.samples = {20};
  const std::vector<std::vector<int32_t>> tokens = {{20, 21, 22}, {21, 22, 0}, {22, 0, 0}};
  for (const int64_t multiple : {0, 5}) {
    read_microbatch(CountingSource(), {}, 100, batch, multiple);
    roll(batch, once);
    roll(once, twice);
    const Microbatch* const copies[] = {&batch, &once, &twice};
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<int32_t>& seen = copies[i]->tokens;
      EXPECT_TRUE(std::equal(tokens[i].begin(), tokens[i].end(), seen.begin())) << i << ", multiple " << multiple;
      EXPECT_TRUE(std::all_of(seen.begin() + 3, seen.end(), [](int32_t token) { return token == 0; })) << i;
    }
  }
}

TEST(Microbatch, IdsOutsideTheVocabularyAreRefused) {
  EXPECT_NO_THROW(read({5}, {}, 9));
  try {
    read({5}, {}, 8);  // the label 8
    FAIL();
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kCorruptData);
  }
}

// Rows of whole sequences that a rank keeps, with their positions; what is counted stays that of all.
TEST(Rows, AreThoseOfTheShare) {
  Microbatch whole = read({10, 20}, {.eod = 11, .mask_loss = true, .reset_attention_mask = true});
  whole.tokens = {0, 100, 1, 101, 2, 102, 3, 103};
  whole.labels = {1, 101, 2, 102, 3, 103, 4, 104};
  whole.loss_mask = {1, 1, 0, 1, 1, 1, 1, 0};
  whole.positions = {0, 0, 1, 1, 0, 2, 1, 3};
  whole.document_ends = {2, 4, 8};
  whole.seq = 4;
  const auto rows = [&](layout::ContextAlgorithm algorithm, int rank) {
    Microbatch own = whole;
    take_rows({algorithm, 4, 2, rank}, own);
    EXPECT_EQ(own.seq, 2);
    EXPECT_EQ(own.loss_tokens(), 6);
    EXPECT_EQ(own.document_ends, whole.document_ends);
    return own;
  };
  const Microbatch behind = rows(layout::ContextAlgorithm::kUlysses, 1);
  EXPECT_EQ(behind.tokens, (std::vector<int32_t>{2, 102, 3, 103}));
  EXPECT_EQ(behind.labels, (std::vector<int32_t>{3, 103, 4, 104}));
  EXPECT_EQ(behind.loss_mask, (std::vector<float>{1, 1, 1, 0}));
  EXPECT_EQ(behind.positions, (std::vector<int32_t>{0, 2, 1, 3}));
  EXPECT_EQ(behind.row_positions, (std::vector<int32_t>{2, 2, 3, 3}));
  const Microbatch outer = rows(layout::ContextAlgorithm::kKvAllgather, 0);
  EXPECT_EQ(outer.tokens, (std::vector<int32_t>{0, 100, 3, 103}));
  EXPECT_EQ(outer.row_positions, (std::vector<int32_t>{0, 0, 3, 3}));
  Microbatch same = whole;
  take_rows({}, same);
  EXPECT_EQ(same.tokens, whole.tokens);
  EXPECT_TRUE(same.row_positions.empty());
  Microbatch shorter = whole;
  shorter.seq = 2;
  EXPECT_THROW(take_rows({layout::ContextAlgorithm::kUlysses, 4, 2, 0}, shorter), core::Error);
}

}  // namespace
}  // namespace ms::train
