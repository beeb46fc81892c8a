#include "train/data/gpt_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <thread>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"
#include "train/data/detail/numpy_random.h"

namespace ms::train {
namespace {

using core::Error;
using core::ErrorCode;
using nlohmann::json;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;
using testing::HasSubstr;

json goldens(const char* which) {
  return json::parse(read_file(std::string(MS_TEST_DATA) + "/train/data_goldens.json")).at(which);
}

std::vector<int64_t> copy(std::span<const int64_t> values) { return {values.begin(), values.end()}; }

TEST(NumpyRandomState, ShufflesLikeNumpy) {
  for (const json& golden : goldens("shuffle")) {
    std::vector<int64_t> values(golden["values"].size());
    std::iota(values.begin(), values.end(), 0);
    detail::NumpyRandomState(golden["seed"]).shuffle(values);
    EXPECT_EQ(values, golden["values"].get<std::vector<int64_t>>());
  }
  EXPECT_THROW(detail::NumpyRandomState(uint64_t{1} << 32), Error);
}

TEST(NumpyRandomState, DrawsAbove32BitsStayInBounds) {
  detail::NumpyRandomState random(5);
  const uint64_t last = (uint64_t{1} << 33) + 12345;
  uint64_t largest = 0;
  for (int i = 0; i < 200; ++i) largest = std::max(largest, random.interval(last));
  EXPECT_LE(largest, last);
  EXPECT_GT(largest, uint64_t{UINT32_MAX});
}

TEST(GptIndices, EqualTheSecondImplementation) {
  bool separate = false;
  for (const json& golden : goldens("gpt")) {
    GptIndexRequest request{golden["begin"],      golden["end"],  golden["num_samples"],
                            golden["seq_length"], golden["seed"], "train"};
    const auto lengths = golden["lengths"].get<std::vector<int32_t>>();
    const GptIndices indices = GptIndices::build(lengths, request);
    EXPECT_EQ(copy(indices.document_index()), golden["document_index"].get<std::vector<int64_t>>());
    EXPECT_EQ(copy(indices.sample_index()), golden["sample_index"].get<std::vector<int64_t>>());
    EXPECT_EQ(copy(indices.shuffle_index()), golden["shuffle_index"].get<std::vector<int64_t>>());
    EXPECT_GE(indices.num_samples(), request.num_samples);
    separate |= golden["separate"].get<bool>();
  }
  EXPECT_TRUE(separate);
}

// More than 2^31 samples x tokens, and more than 2^32 within one epoch: every sample begins where the previous one
// ends, counted in 64 bits.
TEST(GptIndices, DoNotOverflow32Bits) {
  const std::vector<int32_t> lengths = {2'000'000'000, 7, 1'999'999'999, 0, INT32_MAX, 123'456'789};
  const auto flat_begins = [&](const GptIndices& indices) {
    std::vector<int64_t> out{0};
    for (const int64_t document : indices.document_index()) {
      out.push_back(out.back() + lengths[static_cast<size_t>(document)]);
    }
    return out;
  };
  const GptIndexRequest request{0, static_cast<int64_t>(lengths.size()), 30'000, 1'000'003, 1, "train"};
  const GptIndices indices = GptIndices::build(lengths, request);
  ASSERT_GE(indices.num_samples(), request.num_samples);
  const std::vector<int64_t> begins = flat_begins(indices);
  EXPECT_GT(begins.back(), int64_t{1} << 34);
  for (int64_t sample = 0; sample <= indices.num_samples(); ++sample) {
    const auto at = 2 * static_cast<size_t>(sample);
    const int64_t position = indices.sample_index()[at];
    const int64_t offset = indices.sample_index()[at + 1];
    ASSERT_EQ(begins[static_cast<size_t>(position)] + offset, sample * request.seq_length) << sample;
    ASSERT_LT(offset,
              std::max(1, lengths[static_cast<size_t>(indices.document_index()[static_cast<size_t>(position)])]));
  }
  std::vector<int64_t> shuffled = copy(indices.shuffle_index());
  std::sort(shuffled.begin(), shuffled.end());
  for (size_t i = 0; i < shuffled.size(); ++i) ASSERT_EQ(shuffled[i], static_cast<int64_t>(i));
}

TEST(GptIndices, RefusesImpossibleRequests) {
  const auto refuse = [](const std::vector<int32_t>& lengths, int64_t samples, int64_t seq, uint64_t seed,
                         ErrorCode code, const char* says) {
    try {
      GptIndices::build(lengths, {0, static_cast<int64_t>(lengths.size()), samples, seq, seed, "valid"});
      FAIL() << says;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_THAT(e.what(), HasSubstr(says));
    }
  };
  refuse({}, 1, 8, 1, ErrorCode::kInvalidArgument, "no tokens");
  refuse({0, 0}, 1, 8, 1, ErrorCode::kInvalidArgument, "valid");
  refuse({8}, 0, 8, 1, ErrorCode::kInvalidArgument, "needs 9");
  refuse({8}, 1, 0, 1, ErrorCode::kInvalidArgument, "--seq-length 0");
  refuse({8}, 1, 8, uint64_t{1} << 32, ErrorCode::kInvalidArgument, "--seed");
  refuse({8}, INT64_MAX / 4, 8, 1, ErrorCode::kInvalidArgument, "64 bits");
  refuse({8}, INT64_MAX / 64, 8, 1, ErrorCode::kOutOfMemory, "GB of memory");
}

// A data set of documents d with length (d * 5) % 11, whose tokens count up over the whole set.
std::shared_ptr<IndexedDataset> counting_dataset(const std::string& prefix, int documents) {
  IndexedDatasetBuilder builder(prefix, TokenType::kInt32);
  int32_t next = 0;
  for (int d = 0; d < documents; ++d) {
    std::vector<int32_t> tokens(static_cast<size_t>(d * 5 % 11));
    for (int32_t& token : tokens) token = next++;
    builder.add_document(tokens);
  }
  builder.finalize();
  return std::make_shared<IndexedDataset>(prefix);
}

TEST(GptDataset, OneEpochContainsEveryTokenOnce) {
  const TemporaryFolder dir;
  const auto dataset = counting_dataset(dir / "a", 40);
  const int64_t sequences = dataset->num_sequences();
  const GptIndexRequest request{0, sequences, 0, 6, 1234, "train"};
  const GptDataset gpt(dataset, GptIndices::build(dataset->sequence_lengths(0, sequences), request), 6);
  ASSERT_EQ(gpt.size(), (dataset->num_tokens() - 1) / 6);
  std::multiset<int32_t> seen;
  std::vector<int32_t> sample(7);
  for (int64_t i = 0; i < gpt.size(); ++i) {
    gpt.sample(i, sample);
    seen.insert(sample.begin(), sample.end() - 1);  // the last token is the first of another sample
  }
  EXPECT_EQ(std::set<int32_t>(seen.begin(), seen.end()).size(), seen.size());
  EXPECT_EQ(static_cast<int64_t>(seen.size()), gpt.size() * 6);
}

// Cuts the concatenated documents independently and compares.
// What Megatron's GPTDataset computes with inter_document_masking: tokens of each part, the last label in the last one
// (_query_document_sample_shuffle_indices), which __getitem__ takes off again, and cu_seqlens.
std::vector<int64_t> megatron_ends(const IndexedDataset& dataset, const GptIndices& indices, int64_t index) {
  const auto at = 2 * static_cast<size_t>(indices.shuffle_index()[static_cast<size_t>(index)]);
  const std::span<const int64_t> of = indices.sample_index();
  const int64_t begin = of[at], begin_offset = of[at + 1], end = of[at + 2], end_offset = of[at + 3];
  std::vector<int64_t> lengths;
  for (int64_t i = begin; i <= end; ++i) {
    const int64_t offset = i > begin ? 0 : begin_offset;
    const int64_t whole = dataset.sequence_length(indices.document_index()[static_cast<size_t>(i)]);
    lengths.push_back((i < end ? whole : end_offset + 1) - offset);
  }
  lengths.back() -= 1;
  if (lengths.back() == 0) lengths.pop_back();
  std::vector<int64_t> ends;
  for (const int64_t length : lengths) {
    if (length > 0) ends.push_back((ends.empty() ? 0 : ends.back()) + length);  // a document of no tokens hides nothing
  }
  return ends;
}

TEST(GptDataset, DocumentsEndWhereMegatronsDo) {
  const TemporaryFolder dir;
  const auto dataset = counting_dataset(dir / "a", 40);  // of 0 to 10 tokens
  const int64_t sequences = dataset->num_sequences();
  for (const int64_t seq : {1, 6, 11, 40}) {
    const GptIndexRequest request{0, sequences, 400 / seq, seq, 1234, "train"};  // two epochs
    const GptDataset gpt(dataset, GptIndices::build(dataset->sequence_lengths(0, sequences), request), seq);
    size_t most = 0, dropped = 0;
    for (int64_t i = 0; i < gpt.size(); ++i) {
      std::vector<int64_t> ends = {1, 2, 3};
      gpt.document_ends(i, ends);
      EXPECT_EQ(ends, megatron_ends(*dataset, gpt.indices(), i)) << "seq " << seq << " sample " << i;
      EXPECT_EQ(ends.back(), seq);
      most = std::max(most, ends.size());
      // The tokens say the same: those of a document follow one another, and no document continues another's.
      std::vector<int32_t> tokens(static_cast<size_t>(seq) + 1);
      gpt.sample(i, tokens);
      size_t breaks = 1;
      for (size_t s = 1; s < static_cast<size_t>(seq); ++s) breaks += tokens[s] != tokens[s - 1] + 1;
      EXPECT_LE(breaks, ends.size());
      dropped += breaks < ends.size();
    }
    EXPECT_GT(most, seq == 40 ? 5U : 0U);
    EXPECT_LT(dropped, 10U);  // documents that the shuffle has left side by side in order
  }
  const GptDataset gpt(dataset, GptIndices::build(dataset->sequence_lengths(0, sequences), {0, sequences, 0, 6, 1}), 6);
  std::vector<int64_t> ends;
  EXPECT_THROW(gpt.document_ends(gpt.size(), ends), Error);
}

TEST(GptDataset, SamplesAreCutFromTheConcatenatedDocuments) {
  const TemporaryFolder dir;
  const auto dataset = counting_dataset(dir / "a", 25);
  const GptIndexRequest request{3, 20, 50, 9, 77, "train"};
  const GptDataset gpt(dataset, GptIndices::build(dataset->sequence_lengths(3, 20), request), 9);
  std::vector<int32_t> flat;
  for (const int64_t d : gpt.indices().document_index()) {
    std::vector<int32_t> tokens(static_cast<size_t>(dataset->sequence_length(d)));
    dataset->read(d, 0, tokens);
    flat.insert(flat.end(), tokens.begin(), tokens.end());
  }
  ASSERT_GE(gpt.size(), 50);
  for (int64_t i = 0; i < gpt.size(); ++i) {
    std::vector<int32_t> sample(10);
    gpt.sample(i, sample);
    const auto first = flat.begin() + 9 * gpt.indices().shuffle_index()[static_cast<size_t>(i)];
    EXPECT_EQ(sample, std::vector<int32_t>(first, first + 10)) << i;
  }
  std::vector<int32_t> wrong(9);
  EXPECT_THROW(gpt.sample(0, wrong), Error);
  wrong.resize(10);
  EXPECT_THROW(gpt.sample(-1, wrong), Error);
  EXPECT_THROW(gpt.sample(gpt.size(), wrong), Error);
}

// --- the cache ---

class Cache : public testing::Test {
 protected:
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / "cache")) names.push_back(entry.path());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::vector<int64_t> load(const GptIndexRequest& request) {
    const GptIndices indices = GptIndices::build_or_load(*dataset_, request, dir_ / "cache");
    std::vector<int64_t> all = copy(indices.document_index());
    for (const auto part : {indices.sample_index(), indices.shuffle_index()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  std::vector<int64_t> build(const GptIndexRequest& request) const {
    const GptIndices indices = GptIndices::build(dataset_->sequence_lengths(request.begin, request.end), request);
    std::vector<int64_t> all = copy(indices.document_index());
    for (const auto part : {indices.sample_index(), indices.shuffle_index()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  const TemporaryFolder dir_;
  std::shared_ptr<IndexedDataset> dataset_ = counting_dataset(dir_ / "a", 40);
  GptIndexRequest request_{0, 30, 60, 5, 1, "train"};
};

TEST_F(Cache, IsReusedByTheNextRun) {
  EXPECT_EQ(load(request_), build(request_));
  ASSERT_EQ(files().size(), 4);
  const auto written = std::filesystem::last_write_time(files()[0]);
  EXPECT_EQ(load(request_), build(request_));
  EXPECT_EQ(files().size(), 4);
  EXPECT_EQ(std::filesystem::last_write_time(files()[0]), written);
}

TEST_F(Cache, EveryInputIsPartOfTheKey) {
  load(request_);
  size_t expected = 4;
  const auto differs = [&](auto change) {
    GptIndexRequest other = request_;
    change(other);
    EXPECT_EQ(load(other), build(other));
    expected += 4;
    EXPECT_EQ(files().size(), expected);
  };
  differs([](auto& r) { r.begin = 1; });
  differs([](auto& r) { r.end = 29; });
  differs([](auto& r) { r.num_samples = 61; });
  differs([](auto& r) { r.seq_length = 6; });
  differs([](auto& r) { r.seed = 2; });
  differs([](auto& r) { r.split_name = "valid"; });
  dataset_ = counting_dataset(dir_ / "a", 39);  // same prefix, other documents
  EXPECT_EQ(load(request_), build(request_));
  EXPECT_EQ(files().size(), expected + 4);
}

TEST_F(Cache, DamagedFilesAreReplaced) {
  load(request_);
  for (const std::string& path : files()) {
    for (const int damage : {0, 1, 2, 3}) {
      const std::string good = read_file(path);
      std::string bad = good;
      if (damage == 0) bad.clear();
      if (damage == 1) bad.resize(bad.size() / 2);
      if (damage == 2) bad[bad.size() - 3] ^= 1;  // in the last int64, or the description's checksum
      if (damage == 3) std::filesystem::remove(path);
      if (damage != 3) write_file(path, bad);
      EXPECT_EQ(load(request_), build(request_)) << path << " damage " << damage;
      EXPECT_EQ(read_file(path), good) << path << " damage " << damage;
    }
  }
  EXPECT_EQ(files().size(), 4) << "no temporary file is left";
}

// Reading a description recurses: one that is only brackets is refused before that.
TEST_F(Cache, TooDeeplyNestedDescriptionIsReplaced) {
  load(request_);
  for (const std::string& path : files()) {
    if (!path.ends_with("description.txt")) continue;
    const std::string good = test::read_file(path);
    for (const char* nest : {"[", R"({"inputs": )"}) {
      std::string deep;
      while (deep.size() < 60000) deep += nest;
      write_file(path, deep);
      EXPECT_EQ(load(request_), build(request_));
      EXPECT_EQ(test::read_file(path), good);
    }
  }
}

TEST_F(Cache, StoppedBuildLeavesNothing) {
  request_.num_samples = 3000000;  // enough for more than one check
  for (const int after : {0, 1, 2, 5}) {
    int asked = 0;
    request_.stopped = [&] { return asked++ >= after; };
    const test::Thrown thrown = test::thrown_by([&] { load(request_); });
    EXPECT_EQ(thrown.code, ErrorCode::kIo);
    EXPECT_EQ(thrown.text, "interrupted");
    EXPECT_EQ(asked, after + 1);
    EXPECT_FALSE(std::filesystem::exists(dir_ / "cache"));
  }
}

TEST_F(Cache, Int32IndexIsNotUsed) {
  load(request_);
  for (const std::string& path : files()) {
    std::string bytes = read_file(path);
    if (const size_t at = bytes.find("<i8"); at != std::string::npos) {
      bytes.replace(at, 3, "<i4");
      write_file(path, bytes);
    }
  }
  EXPECT_EQ(load(request_), build(request_));
}

TEST_F(Cache, OldTemporaryFilesAreRemoved) {
  std::filesystem::create_directories(dir_ / "cache");
  const std::string old = dir_ / "cache/0123456789abcdef-GPTDataset-train-sample_index.npy.tmp-17-1-99";
  const std::string fresh = old + "9";
  const std::string foreign = dir_ / "cache/notes.tmp-1";
  for (const std::string& path : {old, fresh, foreign}) write_file(path, "part");
  for (const std::string& path : {old, foreign}) {
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  }
  load(request_);
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(fresh));
  EXPECT_TRUE(std::filesystem::exists(foreign));
}

TEST_F(Cache, ManyProcessesMayWriteAtOnce) {
  const auto expected = build(request_);
  std::vector<std::thread> threads;
  std::vector<std::vector<int64_t>> got(4);
  for (auto& result : got) threads.emplace_back([&] { result = load(request_); });
  for (auto& thread : threads) thread.join();
  for (const auto& result : got) EXPECT_EQ(result, expected);
}

TEST_F(Cache, UnwritableFolderNamesTheFlag) {
  write_file(dir_ / "cache", "a file where the folder should be");
  try {
    load(request_);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kIo);
    EXPECT_THAT(e.what(), HasSubstr("--data-cache-path"));
  }
}

}  // namespace
}  // namespace ms::train
