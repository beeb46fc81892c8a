// Compares with what Megatron's own classes wrote and drew (tests/train/data/make_megatron_goldens.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "train/data/blended_dataset.h"
#include "train/data/build_datasets.h"
#include "train/data/indexed_dataset.h"
#include "train/data/sampler.h"

namespace ms::train {
namespace {

using core::Error;
using core::ErrorCode;
using nlohmann::json;
using Ids = std::vector<int32_t>;

const std::string kFolder = std::string(MS_TEST_DATA) + "/train/megatron/";

json goldens() { return json::parse(test::read_file(kFolder + "goldens.json")); }

TEST(Megatron, ReadsDataSetsOfEveryType) {
  const json all = goldens();
  ASSERT_EQ(all["sets"].size(), 6);
  for (const json& set : all["sets"]) {
    for (const bool use_mmap : {true, false}) {
      const IndexedDataset dataset(kFolder + set["name"].get<std::string>(), use_mmap);
      EXPECT_EQ(token_type_name(dataset.token_type()), set["name"]);
      ASSERT_EQ(dataset.num_documents(), static_cast<int64_t>(set["documents"].size()));
      for (int64_t d = 0; d < dataset.num_documents(); ++d) {
        const json& sequences = set["documents"][static_cast<size_t>(d)];
        ASSERT_EQ(dataset.document_index(d + 1) - dataset.document_index(d), static_cast<int64_t>(sequences.size()));
        for (size_t s = 0; s < sequences.size(); ++s) {
          const int64_t sequence = dataset.document_index(d) + static_cast<int64_t>(s);
          Ids ids(static_cast<size_t>(dataset.sequence_length(sequence)));
          dataset.read(sequence, 0, ids);
          EXPECT_EQ(ids, sequences[s].get<Ids>()) << set["name"] << " document " << d;
        }
      }
    }
  }
}

TEST(Megatron, NonTextSetsAreRefused) {
  const json all = goldens();
  for (const json& name : all["refused"]) {
    try {
      const IndexedDataset dataset(kFolder + name.get<std::string>());
      ADD_FAILURE() << name << " accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUnsupported) << e.what();
    }
  }
}

TEST(Megatron, BlendsOfHundredsOfSetsAreEqual) {
  const json all = goldens();
  for (const json& golden : all["blends"]) {
    const auto weights = golden["weights"].get<std::vector<double>>();
    const BlendIndices indices = build_blend_indices(weights, static_cast<int64_t>(golden["dataset"].size()));
    EXPECT_EQ(indices.dataset, golden["dataset"].get<std::vector<int16_t>>());
    EXPECT_EQ(indices.sample, golden["sample"].get<std::vector<int64_t>>());
  }
}

TEST(Megatron, SamplesAndLossMasksAreEqual) {
  const json all = goldens();
  const test::TemporaryFolder dir;
  for (const json& set : all["sets"]) {
    for (const char* end : {".bin", ".idx"}) {
      const std::string file = set["name"].get<std::string>() + end;
      test::write_file(dir / file, test::read_file(kFolder + file));
    }
  }
  const auto paths = [&](const json& values) {
    std::vector<std::string> out;
    if (values.is_null()) return out;
    for (const json& value : values) {
      const auto text = value.get<std::string>();
      out.push_back(std::filesystem::exists(dir / (text + ".idx")) ? dir / text : text);
    }
    return out;
  };
  int64_t compared = 0;
  for (const json& golden : all["cases"]) {
    DataConfig config;
    config.data_cache_path = dir / "cache";
    if (golden.contains("data_path")) {
      config.data_path = paths(golden["data_path"]);
      config.split = golden["split"];
    } else {
      config.train_data_path = paths(golden["per_split"][0]);
      config.valid_data_path = paths(golden["per_split"][1]);
      config.test_data_path = paths(golden["per_split"][2]);
    }
    const auto sizes = golden["sizes"].get<std::vector<int64_t>>();
    const TrainValidTest sets = build_datasets(config, golden["seq_length"].get<int64_t>(),
                                               golden["seed"].get<uint64_t>(), sizes[0], sizes[1], sizes[2]);
    const std::array<const SampleSource*, 3> sources = {sets.train.get(), sets.valid.get(), sets.test.get()};
    for (size_t which = 0; which < 3; ++which) {
      const json& drawn = golden["drawn"][which];
      for (size_t i = 0; i < drawn["samples"].size(); ++i, ++compared) {
        ASSERT_NE(sources[which], nullptr) << golden;
        Microbatch batch;
        batch.samples = {static_cast<int64_t>(i)};
        read_microbatch(*sources[which], {.eod = all["eod"].get<int32_t>(), .mask_loss = true}, int64_t{INT32_MAX} + 1,
                        batch);
        const auto sample = drawn["samples"][i].get<Ids>();
        EXPECT_EQ(batch.tokens, Ids(sample.begin(), sample.end() - 1)) << golden["data_path"] << " " << i;
        EXPECT_EQ(batch.labels, Ids(sample.begin() + 1, sample.end())) << golden["data_path"] << " " << i;
        EXPECT_EQ(batch.loss_mask, drawn["loss_mask"][i].get<std::vector<float>>());
      }
    }
  }
  EXPECT_GT(compared, 400);
}

}  // namespace
}  // namespace ms::train
