#include "train/data/build_datasets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/config.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "train/data/blended_dataset.h"
#include "train/data/indexed_dataset.h"

namespace ms::train {
namespace {

using core::Error;
using core::ErrorCode;
using nlohmann::json;
using test::TemporaryFolder;
using testing::HasSubstr;

using Strings = std::vector<std::string>;

json goldens(const char* which) {
  return json::parse(test::read_file(std::string(MS_TEST_DATA) + "/train/data_goldens.json")).at(which);
}

template <class Body>
void expect_error(ErrorCode code, const std::string& says, Body body) {
  try {
    body();
    FAIL() << "no error that says " << says;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(says));
  }
}

TEST(ParseBlend, AcceptsMegatronsForms) {
  EXPECT_EQ(parse_blend({"p"}, "--x").prefixes, Strings{"p"});
  EXPECT_TRUE(parse_blend({"p"}, "--x").weights.empty());
  EXPECT_EQ(parse_blend({"p", "q", "r"}, "--x").prefixes, (Strings{"p", "q", "r"}));
  EXPECT_EQ(parse_blend({"p", "q"}, "--x").prefixes, (Strings{"p", "q"}));
  const Blend weighted = parse_blend({"0.3", "p", "7", "q"}, "--x");
  EXPECT_EQ(weighted.prefixes, (Strings{"p", "q"}));
  EXPECT_EQ(weighted.weights, (std::vector<double>{0.3, 7}));
  expect_error(ErrorCode::kInvalidArgument, "--x", [] { parse_blend({"0.3", "p", "q", "r"}, "--x"); });
  expect_error(ErrorCode::kInvalidArgument, "above 0", [] { parse_blend({"0", "p", "1", "r"}, "--x"); });
  expect_error(ErrorCode::kInvalidArgument, "above 0", [] { parse_blend({"-1", "p", "1", "r"}, "--x"); });
}

// As "--split '99,1,0'" within a bash array, as in Megatron's train_llama3_8b_h100_fp8.sh.
TEST(ParseSplit, QuotesOfAShellAreNoPartOfIt) {
  EXPECT_EQ(parse_split("'99,1,0'"), parse_split("99,1,0"));
  EXPECT_EQ(parse_split("\"99,1,0\""), parse_split("99,1,0"));
  expect_error(ErrorCode::kInvalidArgument, "--split", [] { parse_split("'99,1,0"); });
}

TEST(ParseSplit, BoundsEqualTheSecondImplementation) {
  for (const json& golden : goldens("split")) {
    const SplitMatrix matrix = parse_split(golden["split"].get<std::string>());
    for (size_t i = 0; i < 3; ++i) {
      const json& bounds = golden["bounds"][i];
      ASSERT_EQ(matrix[i].has_value(), !bounds.is_null()) << golden;
      if (!matrix[i]) continue;
      const auto n = golden["sequences"].get<double>();
      EXPECT_EQ(std::nearbyint(matrix[i]->first * n), bounds[0].get<double>()) << golden;
      EXPECT_EQ(std::nearbyint(matrix[i]->second * n), bounds[1].get<double>()) << golden;
    }
  }
  for (const char* bad : {"", "a", "1,2,3,4", "1,,1", "-1,2", "0,0,0", "nan", "1,inf", "1;2"}) {
    expect_error(ErrorCode::kInvalidArgument, "--split", [&] { parse_split(bad); });
  }
}

TEST(NormalizeWeights, SumsInNumpysOrder) {
  for (const json& golden : goldens("normalize")) {
    const auto weights = golden["weights"].get<std::vector<double>>();
    const double sum = std::strtod(golden["sum_hex"].get<std::string>().c_str(), nullptr);
    const auto normalized = normalize_weights(weights);
    for (size_t i = 0; i < weights.size(); ++i) EXPECT_EQ(normalized[i], weights[i] / sum) << weights.size();
  }
}

TEST(BlendIndices, EqualTheSecondImplementation) {
  for (const json& golden : goldens("blend")) {
    const auto weights = normalize_weights(golden["weights"].get<std::vector<double>>());
    const json& expected = golden["indices"];
    const BlendIndices indices = build_blend_indices(weights, static_cast<int64_t>(expected.size()));
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(indices.dataset[i], expected[i][0].get<int>()) << i;
      EXPECT_EQ(indices.sample[i], expected[i][1].get<int64_t>()) << i;
    }
  }
}

TEST(BlendIndices, NoDataSetFallsMoreThanOneSampleBehind) {
  const std::vector<double> weights = normalize_weights(std::vector<double>{1, 2, 7, 0.5});
  const BlendIndices indices = build_blend_indices(weights, 5000);
  std::vector<double> drawn(weights.size(), 0);
  for (size_t i = 0; i < indices.dataset.size(); ++i) {
    EXPECT_EQ(indices.sample[i], static_cast<int64_t>(drawn[static_cast<size_t>(indices.dataset[i])]));
    ++drawn[static_cast<size_t>(indices.dataset[i])];
    for (size_t d = 0; d < weights.size(); ++d) {
      EXPECT_LE(std::abs(weights[d] * static_cast<double>(i + 1) - drawn[d]), static_cast<double>(weights.size() - 1));
    }
  }
}

// Writes documents of 10 tokens with ids in [base, base + 10 * documents).
void write_set(const std::string& prefix, int documents, int32_t base) {
  IndexedDatasetBuilder builder(prefix, TokenType::kInt32);
  for (int d = 0; d < documents; ++d) {
    std::vector<int32_t> tokens;
    for (int t = 0; t < 10; ++t) tokens.push_back(base + d * 10 + t);
    builder.add_document(tokens);
  }
  builder.finalize();
}

// Same without the builder's syncs, all tokens equal: 20 documents of 10.
void write_raw_set(const std::string& prefix, int token) {
  std::string idx(std::string("MMIDIDX\0\0", 9)), bin;
  const auto put = [](std::string& to, auto value) { to.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(idx, uint64_t{1});
  put(idx, static_cast<uint8_t>(TokenType::kUint16));
  put(idx, uint64_t{20});
  put(idx, uint64_t{21});
  for (int d = 0; d < 20; ++d) put(idx, int32_t{10});
  for (int d = 0; d < 20; ++d) put(idx, int64_t{d * 20});
  for (int d = 0; d < 21; ++d) put(idx, int64_t{d});
  for (int t = 0; t < 200; ++t) put(bin, static_cast<uint16_t>(token));
  test::write_file(idx_path(prefix), idx);
  test::write_file(bin_path(prefix), bin);
}

class BuildDatasets : public testing::Test {
 protected:
  BuildDatasets() {
    write_set(dir_ / "a", 100, 0);
    write_set(dir_ / "b", 50, 10000);
    config_.data_cache_path = dir_ / "cache";
  }
  static std::pair<int32_t, int32_t> extent(const SampleSource& source) {
    std::vector<int32_t> sample(static_cast<size_t>(source.seq_length() + 1));
    std::pair<int32_t, int32_t> result{INT32_MAX, 0};
    for (int64_t i = 0; i < source.size(); ++i) {
      source.sample(i, sample);
      for (const int32_t token : sample) result = {std::min(result.first, token), std::max(result.second, token)};
    }
    return result;
  }
  const TemporaryFolder dir_;
  DataConfig config_;
};

TEST_F(BuildDatasets, SplitsDocumentsWithoutOverlap) {
  config_.data_path = {dir_ / "a"};
  config_.split = "80,15,5";
  const TrainValidTest sets = build_datasets(config_, 7, 1234, 300, 10, 5);
  EXPECT_GE(sets.train->size(), 300);
  EXPECT_EQ(sets.train->seq_length(), 7);
  EXPECT_EQ(extent(*sets.train), (std::pair{0, 799}));
  EXPECT_GE(extent(*sets.valid).first, 800);
  EXPECT_LT(extent(*sets.valid).second, 950);
  EXPECT_GE(extent(*sets.test).first, 950);
}

TEST_F(BuildDatasets, SetsThatAreNotRequestedAreNull) {
  config_.data_path = {dir_ / "a"};
  config_.split = "1,1,0";
  const TrainValidTest sets = build_datasets(config_, 7, 1234, 10, 0, 10);
  EXPECT_NE(sets.train, nullptr);
  EXPECT_EQ(sets.valid, nullptr);
  EXPECT_EQ(sets.test, nullptr);  // its share is 0
  config_.data_path.clear();
  EXPECT_EQ(build_datasets(DataConfig{}, 7, 1, 10, 10, 10).train, nullptr);
}

TEST_F(BuildDatasets, OnlyTheSeedChangesTheOrder) {
  config_.data_path = {dir_ / "a"};
  const auto first = [&](uint64_t seed) {
    std::vector<int32_t> sample(8);
    build_datasets(config_, 7, seed, 10, 0, 0).train->sample(0, sample);
    return sample;
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
}

TEST_F(BuildDatasets, MmapAndPreadGiveTheSame) {
  config_.data_path = {"0.5", dir_ / "a", "0.5", dir_ / "b"};
  const TrainValidTest mapped = build_datasets(config_, 7, 3, 40, 0, 0);
  config_.mmap_bin_files = false;
  const TrainValidTest read = build_datasets(config_, 7, 3, 40, 0, 0);
  std::vector<int32_t> x(8), y(8);
  for (int64_t i = 0; i < mapped.train->size(); ++i) {
    mapped.train->sample(i, x);
    read.train->sample(i, y);
    EXPECT_EQ(x, y);
  }
}

TEST_F(BuildDatasets, WeightedBlendDrawsInProportion) {
  config_.data_path = {"3", dir_ / "a", "1", dir_ / "b"};
  const TrainValidTest sets = build_datasets(config_, 7, 1234, 400, 0, 0);
  ASSERT_GE(sets.train->size(), 400);
  int from_b = 0;
  std::vector<int32_t> sample(8);
  for (int64_t i = 0; i < 400; ++i) {
    sets.train->sample(i, sample);
    from_b += sample[0] >= 10000 ? 1 : 0;
  }
  EXPECT_EQ(from_b, 100);
}

// Hundreds of data sets, listed in a file, with a limit of fewer descriptors than data sets.
TEST_F(BuildDatasets, HundredsOfDataSetsAreReadFromAFile) {
  constexpr int kSets = 300;
  std::string list;
  for (int i = 0; i < kSets; ++i) {
    const std::string prefix = dir_ / ("set" + std::to_string(i));
    write_raw_set(prefix, i);
    list += std::to_string(i % 7 + 1) + " " + prefix + (i % 2 == 0 ? "\n" : " ");
  }
  test::write_file(dir_ / "list", list);
  config_.data_args_path = dir_ / "list";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{64, before.rlim_max};
  for (const bool mapped : {true, false}) {
    config_.mmap_bin_files = mapped;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    const TrainValidTest sets = build_datasets(config_, 4, 1234, 2000, 0, 0);
    std::vector<int> drawn(kSets, 0);
    std::vector<int32_t> sample(5);
    for (int64_t i = 0; i < 2000; ++i) {
      sets.train->sample(i, sample);
      ++drawn[static_cast<size_t>(sample[0])];
    }
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    double total = 0;
    for (int i = 0; i < kSets; ++i) total += i % 7 + 1;
    for (int i = 0; i < kSets; ++i) EXPECT_NEAR(drawn[static_cast<size_t>(i)], 2000 * (i % 7 + 1) / total, 1.0) << i;
  }
}

TEST_F(BuildDatasets, SplitsAreReadFromAFile) {
  config_.per_split_data_args_path = dir_ / "splits.json";
  test::write_file(
      dir_ / "splits.json",
      json{{"train", {0.5, dir_ / "a", "0.5", dir_ / "b"}}, {"valid", "1 " + (dir_ / "b")}, {"test", json::array()}}
          .dump());
  const TrainValidTest sets = build_datasets(config_, 7, 1234, 100, 20, 20);
  EXPECT_LT(extent(*sets.train).first, 1000);  // from both sets
  EXPECT_GE(extent(*sets.train).second, 10000);
  EXPECT_GE(extent(*sets.valid).first, 10000);
  EXPECT_EQ(sets.test, nullptr);
  const auto refuse = [&](ErrorCode code, const char* says, const std::string& bytes) {
    test::write_file(dir_ / "splits.json", bytes);
    expect_error(code, says, [&] { config_.validate(); });
  };
  refuse(ErrorCode::kCorruptData, "not JSON", "{\"train\": [");
  refuse(ErrorCode::kCorruptData, "an object", "7");
  refuse(ErrorCode::kCorruptData, "nested deeper",
         "{\"train\": " + std::string(100, '[') + std::string(100, ']') + "}");
  refuse(ErrorCode::kCorruptData, "\"vaild\"", R"({"vaild": []})");
  refuse(ErrorCode::kCorruptData, "\"train\"", R"({"train": {"a": 1}})");
  refuse(ErrorCode::kCorruptData, "\"test\"", R"({"test": [[1]]})");
  refuse(ErrorCode::kInvalidArgument, "--valid-data-path", R"({"valid": [1, "p", "x", "q"]})");
}

TEST_F(BuildDatasets, UnweightedListIsReadOnce) {
  config_.train_data_path = {dir_ / "a", dir_ / "b"};
  const TrainValidTest sets = build_datasets(config_, 9, 1234, 100, 0, 0);
  EXPECT_EQ(sets.train->size(), 100);
  expect_error(ErrorCode::kInvalidArgument, "weights", [&] { build_datasets(config_, 9, 1234, 1000, 0, 0); });
}

TEST_F(BuildDatasets, SeparatePathsGiveSeparateSets) {
  config_.train_data_path = {dir_ / "a"};
  config_.valid_data_path = {"1.0", dir_ / "b"};
  const TrainValidTest sets = build_datasets(config_, 7, 1234, 200, 20, 20);
  EXPECT_EQ(extent(*sets.train), (std::pair{0, 999}));
  EXPECT_GE(extent(*sets.valid).first, 10000);
  EXPECT_EQ(sets.test, nullptr);
}

TEST_F(BuildDatasets, CacheIsBesideTheDataByDefault) {
  config_.data_path = {dir_ / "a"};
  config_.data_cache_path.clear();
  build_datasets(config_, 7, 1, 10, 0, 0);
  EXPECT_TRUE(std::filesystem::is_directory(dir_ / "a/cache/GPTDataset_indices"));
}

TEST_F(BuildDatasets, IndexIsInMemoryWithoutACacheFolder) {
  test::write_file(dir_ / "a/cache", "");  // the folder cannot be created: nothing is written
  std::filesystem::create_directories(dir_ / "a");
  test::write_file(dir_ / "a/cache", "a file where the folder should be");
  config_.data_path = {dir_ / "a"};
  const TrainValidTest cached = build_datasets(config_, 7, 1, 10, 0, 0);
  config_.data_cache_path.clear();
  const TrainValidTest in_memory = build_datasets(config_, 7, 1, 10, 0, 0);
  std::vector<int32_t> x(8), y(8);
  cached.train->sample(3, x);
  in_memory.train->sample(3, y);
  EXPECT_EQ(x, y);
}

// Stopping also prevents the fallback to an index in memory.
TEST_F(BuildDatasets, StopsOnRequest) {
  for (const std::vector<std::string>& path :
       {std::vector<std::string>{dir_ / "a"}, {"1", dir_ / "a", "2", dir_ / "b"}}) {
    config_.data_path = path;
    config_.data_cache_path.clear();
    int asked = 0;
    expect_error(ErrorCode::kIo, "interrupted",
                 [&] { build_datasets(config_, 7, 1, 10, 0, 0, [&] { return ++asked > 0; }); });
    EXPECT_EQ(asked, 2);  // by the build, and before continuing without a cache
  }
}

TEST_F(BuildDatasets, TestSetIsNullIfItsShareHasNoDocument) {
  config_.data_path = {dir_ / "a"};
  for (const char* split : {"", "949,50,1", "90,9.9,0.1"}) {
    config_.split = split;
    const TrainValidTest sets = build_datasets(config_, 7, 1, 10, 10, 10);
    EXPECT_NE(sets.valid, nullptr);
    EXPECT_EQ(sets.test, nullptr) << split;
  }
  config_.split = "90,5,5";
  EXPECT_NE(build_datasets(config_, 7, 1, 10, 10, 10).test, nullptr);
}

TEST_F(BuildDatasets, InvalidInputIsRefused) {
  const auto refuse = [&](ErrorCode code, const char* says, auto change) {
    DataConfig config = config_;
    change(config);
    expect_error(code, says, [&] { build_datasets(config, 7, 1, 10, 10, 10); });
  };
  refuse(ErrorCode::kNotFound, "nothing.idx", [&](auto& c) { c.data_path = {dir_ / "nothing"}; });
  refuse(ErrorCode::kInvalidArgument, "leaves none for valid",
         [&](auto& c) { c.data_path = {dir_ / "a"}, c.split = "90,0.1,9.9"; });
  write_set(dir_ / "one", 1, 0);
  refuse(ErrorCode::kInvalidArgument,
         "has 1 document, of which --split 969,30,1 leaves none for valid: a document is not divided. Give data of its "
         "own "
         "with --valid-data-path, or --eval-iters 0 for no evaluation",
         [&](auto& c) { c.data_path = {dir_ / "one"}; });
  refuse(ErrorCode::kInvalidArgument, "excludes --train-data-path",
         [&](auto& c) { c.data_path = {"p"}, c.valid_data_path = {"q"}; });
  refuse(ErrorCode::kInvalidArgument, "--data-args-path",
         [&](auto& c) { c.data_path = {dir_ / "a"}, c.data_args_path = dir_ / "list"; });
  refuse(ErrorCode::kNotFound, "no-such-list", [&](auto& c) { c.data_args_path = dir_ / "no-such-list"; });
  test::write_file(dir_ / "empty", " \n");
  refuse(ErrorCode::kInvalidArgument, "lists no data set", [&](auto& c) { c.data_args_path = dir_ / "empty"; });
  refuse(ErrorCode::kInvalidArgument, "--per-split-data-args-path",
         [&](auto& c) { c.train_data_path = {dir_ / "a"}, c.per_split_data_args_path = dir_ / "splits"; });
  refuse(ErrorCode::kInvalidArgument, "--split", [&](auto& c) { c.train_data_path = {"p"}, c.split = "1,1,1"; });
  refuse(ErrorCode::kInvalidArgument, "--test-data-path", [&](auto& c) { c.test_data_path = {"1", "p", "x", "q"}; });
}

TEST(DataConfigFlags, EachSetsItsField) {
  DataConfig config;
  core::ConfigFields fields;
  fields.add("data", config);
  fields.parse_flags({"--data-path",
                      "1",
                      "p",
                      "2",
                      "q",
                      "--split",
                      "1,2,3",
                      "--data-cache-path",
                      "c",
                      "--tokenizer-type",
                      "HuggingFaceTokenizer",
                      "--tokenizer-model",
                      "t",
                      "--eod-mask-loss",
                      "--no-mmap-bin-files",
                      "--vocab-file",
                      "v",
                      "--merge-file",
                      "m",
                      "--vocab-extra-ids",
                      "7",
                      "--data-args-path",
                      "a",
                      "--per-split-data-args-path",
                      "s"});
  EXPECT_EQ(config.data_path, (Strings{"1", "p", "2", "q"}));
  EXPECT_EQ(config.split + config.data_cache_path + config.tokenizer_model, "1,2,3ct");
  EXPECT_EQ(config.tokenizer_type, "HuggingFaceTokenizer");
  EXPECT_EQ(config.data_args_path + config.per_split_data_args_path, "as");
  EXPECT_TRUE(config.eod_mask_loss);
  EXPECT_FALSE(config.mmap_bin_files);
  const TokenizerChoice tokenizer = config.tokenizer(50);
  EXPECT_EQ(tokenizer.tokenizer_type, "HuggingFaceTokenizer");
  EXPECT_EQ(tokenizer.tokenizer_model + tokenizer.vocab_file + tokenizer.merge_file, "tvm");
  EXPECT_EQ(tokenizer.vocab_size, 50);
  EXPECT_EQ(tokenizer.vocab_extra_ids, 7);
}

}  // namespace
}  // namespace ms::train
