// --mock-data. The lengths are those of numpy 2.4:
//   numpy.random.default_rng(seed=0).integers(low=1, high=4096, size=100000, dtype=numpy.int32)
#include "train/data/mock_documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "tests/support/thrown.h"
#include "train/data/build_datasets.h"
#include "train/data/detail/numpy_random.h"
#include "train/data/gpt_dataset.h"

namespace ms::train {
namespace {

using Ids = std::vector<int32_t>;

TEST(NumpyGenerator, DrawsWhatNumpyDraws) {
  detail::NumpyGenerator random(0);
  EXPECT_EQ(random.next64(), 0xa30febcfd9c2825fU);
  EXPECT_EQ(random.next64(), 0x4510bdf882d9d721U);
  EXPECT_EQ(random.next64(), 0x0a7d3da94ecde8b8U);
}

TEST(MockDocuments, HaveMegatronsLengths) {
  const MockDocuments documents(257, 256);
  const auto lengths = documents.lengths();
  ASSERT_EQ(lengths.size(), 100000U);
  EXPECT_EQ(Ids(lengths.begin(), lengths.begin() + 12),
            (Ids{3484, 2609, 2094, 1105, 1261, 168, 309, 68, 718, 3331, 2660, 3738}));
  EXPECT_EQ(Ids(lengths.end() - 3, lengths.end()), (Ids{61, 100, 769}));
  int64_t sum = 0, weighted = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    sum += lengths[i];
    weighted += lengths[i] * static_cast<int64_t>(i % 997 + 1);
  }
  EXPECT_EQ(sum, 204637097);
  EXPECT_EQ(weighted, 102093606542);
}

TEST(MockDocuments, CountModuloTheVocabularyAndEndWithEod) {
  const MockDocuments documents(50, 49);
  Ids ids(static_cast<size_t>(documents.sequence_length(5)));
  ASSERT_EQ(ids.size(), 168U);
  documents.read(5, 0, ids);
  for (size_t i = 0; i + 1 < ids.size(); ++i) ASSERT_EQ(ids[i], static_cast<int32_t>((i + 1) % 50)) << i;
  EXPECT_EQ(ids.back(), 49);
  Ids part(3);
  documents.read(5, 165, part);
  EXPECT_EQ(part, (Ids{16, 17, 49}));
}

// The documents of a third, shuffled as those of any data set, and cut in order.
Ids naive_sample(const MockDocuments& documents, const GptIndices& indices, int64_t seq_length, int64_t drawn) {
  Ids text;
  for (const int64_t document : indices.document_index()) {
    Ids ids(static_cast<size_t>(documents.sequence_length(document)));
    documents.read(document, 0, ids);
    text.insert(text.end(), ids.begin(), ids.end());
    if (static_cast<int64_t>(text.size()) > (drawn + 1) * seq_length) break;
  }
  const auto begin = text.begin() + drawn * seq_length;
  return {begin, begin + seq_length + 1};
}

TEST(MockData, SamplesAreCutFromTheThirdOfTheirSplit) {
  DataConfig config;
  config.mock_data = true;
  config.split = "969,30,1";  // has no effect
  const auto tokenizer = make_tokenizer({.tokenizer_type = "NullTokenizer", .vocab_size = 300});
  constexpr int64_t kSeq = 64;
  const TrainValidTest sets = build_datasets(config, kSeq, 1234, 500, 20, 10, {}, tokenizer.get());
  const MockDocuments documents(301, 300);
  const std::vector<std::pair<int64_t, int64_t>> thirds = {{0, 33333}, {33333, 66667}, {66667, 100000}};
  size_t which = 0;
  for (const SampleSource* samples : {sets.train.get(), sets.valid.get(), sets.test.get()}) {
    ASSERT_NE(samples, nullptr);
    const auto& indices = dynamic_cast<const GptDataset*>(samples)->indices();
    const auto [begin, end] = thirds[which++];
    const auto [least, most] = std::ranges::minmax(indices.document_index());
    EXPECT_EQ(least, begin);
    EXPECT_EQ(most, end - 1);
    for (const int64_t index : {0, 3, 7}) {
      Ids sample(kSeq + 1);
      samples->sample(index, sample);
      EXPECT_THAT(sample, testing::Each(testing::AllOf(testing::Ge(0), testing::Le(300))));
      const int64_t drawn = indices.shuffle_index()[static_cast<size_t>(index)];
      if (drawn < 100'000) {
        EXPECT_EQ(sample, naive_sample(documents, indices, kSeq, drawn)) << "sample " << index;
      }
    }
  }
  EXPECT_EQ(build_datasets(config, kSeq, 1234, 500, 0, 0, {}, tokenizer.get()).valid, nullptr);
}

TEST(MockData, DependsOnTheSeed) {
  DataConfig config;
  config.mock_data = true;
  const auto tokenizer = make_tokenizer({});
  const auto first = [&](uint64_t seed) {
    Ids sample(17);
    build_datasets(config, 16, seed, 10, 0, 0, {}, tokenizer.get()).train->sample(0, sample);
    return sample;
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
}

TEST(MockData, ExcludesDataSets) {
  DataConfig config;
  config.mock_data = true;
  EXPECT_NO_THROW(config.validate());
  config.data_path = {"corpus"};
  EXPECT_NE(test::thrown_by([&] { config.validate(); }).text.find("--mock-data"), std::string::npos);
  config.data_path.clear();
  config.valid_data_path = {"corpus"};
  EXPECT_EQ(test::code_of([&] { config.validate(); }), core::ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ms::train
