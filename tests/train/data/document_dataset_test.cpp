// Samples of one document each: their lengths, their tokens, and the order of epochs.
#include "train/data/document_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "train/data/sampler.h"

namespace ms::train {
namespace {

// Document d has the length lengths[d] and the tokens 100 d, 100 d + 1, ..
class Numbered : public SequenceSource {
 public:
  explicit Numbered(std::vector<int64_t> lengths) : lengths_(std::move(lengths)) {}
  const std::string& name() const override { return name_; }
  int64_t sequence_length(int64_t sequence) const override { return lengths_[static_cast<size_t>(sequence)]; }
  void read(int64_t sequence, int64_t offset, std::span<int32_t> out) const override {
    for (int32_t& token : out) token = static_cast<int32_t>(100 * sequence + offset++);
  }

 private:
  std::string name_ = "numbered";
  std::vector<int64_t> lengths_;
};

DocumentDataset dataset(int64_t num_samples, uint64_t seed = 1) {
  return {std::make_shared<const Numbered>(std::vector<int64_t>{2, 9, 1, 4, 6, 0, 5}),
          {.begin = 0, .end = 7, .num_samples = num_samples, .seq_length = 5, .seed = seed, .split_name = "train"}};
}

int64_t document_of(const DocumentDataset& samples, int64_t index) {
  std::vector<int32_t> tokens(static_cast<size_t>(samples.sample_length(index)) + 1);
  samples.sample(index, tokens);
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], tokens[0] / 100 * 100 + static_cast<int32_t>(i));
  return tokens[0] / 100;
}

TEST(DocumentDataset, ASampleIsADocumentOfAtMostSeqLengthTokensAndALabel) {
  const DocumentDataset samples = dataset(0);
  ASSERT_EQ(samples.size(), 5);  // without the documents of 1 and 0 tokens
  const std::vector<int64_t> expected = {1, 5, 0, 3, 5, 0, 4};
  std::set<int64_t> seen;
  for (int64_t i = 0; i < samples.size(); ++i) {
    const int64_t document = document_of(samples, i);
    EXPECT_TRUE(seen.insert(document).second);
    EXPECT_EQ(samples.sample_length(i), expected[static_cast<size_t>(document)]) << document;
  }
}

TEST(DocumentDataset, EveryEpochHasEachDocumentInAnOrderOfItsOwn) {
  const DocumentDataset samples = dataset(23), again = dataset(23), other = dataset(23, 2);
  ASSERT_EQ(samples.size(), 23);
  std::vector<int64_t> documents, of_other;
  for (int64_t i = 0; i < 23; ++i) {
    documents.push_back(document_of(samples, i));
    of_other.push_back(document_of(other, i));
    EXPECT_EQ(document_of(again, i), documents.back());
  }
  EXPECT_NE(documents, of_other);
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    const std::vector<int64_t> order(documents.begin() + 5 * epoch, documents.begin() + 5 * epoch + 5);
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()), (std::set<int64_t>{0, 1, 3, 4, 6}));
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 1u);
}

TEST(DocumentDataset, SaysWhatIsWrong) {
  DocumentDataset samples = dataset(3);
  std::vector<int32_t> tokens(9);
  EXPECT_THROW(samples.sample(3, tokens), core::Error);
  EXPECT_THROW(samples.sample_length(-1), core::Error);
  EXPECT_THROW(samples.sample(0, tokens), core::Error);
  EXPECT_THROW(DocumentDataset(std::make_shared<const Numbered>(std::vector<int64_t>{1, 0}),
                               {.begin = 0, .end = 2, .seq_length = 5, .split_name = "train"}),
               core::Error);
}

TEST(DocumentDataset, AMicroBatchIsPaddedToItsLongestSample) {
  const DocumentDataset samples = dataset(5);
  for (int64_t i = 0; i < 5; ++i) {
    for (const int64_t multiple : {0, 1, 2, 4}) {
      Microbatch microbatch;
      microbatch.samples = {i, (i + 1) % 5};
      read_microbatch(samples, {.eod = 3, .reset_attention_mask = true}, 1000, microbatch, multiple);
      const std::vector<int64_t> lengths = {samples.sample_length(i), samples.sample_length((i + 1) % 5)};
      EXPECT_EQ(microbatch.lengths, lengths);
      const int64_t longest = std::max(lengths[0], lengths[1]);
      EXPECT_EQ(microbatch.seq, multiple == 0 ? 5 : (longest + multiple - 1) / multiple * multiple);
      EXPECT_EQ(microbatch.loss_tokens(), static_cast<double>(lengths[0] + lengths[1]));
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t s = 0; s < microbatch.seq; ++s) {
          const auto row = static_cast<size_t>(s * 2 + b);
          const bool is_there = s < lengths[static_cast<size_t>(b)];
          EXPECT_EQ(microbatch.loss_mask[row], is_there ? 1.0F : 0.0F);
          if (is_there) {
            EXPECT_EQ(microbatch.labels[row], microbatch.tokens[row] + 1);
          }
        }
      }
      EXPECT_EQ(microbatch.document_ends.back(), 2 * microbatch.seq);
    }
  }
}

}  // namespace
}  // namespace ms::train
