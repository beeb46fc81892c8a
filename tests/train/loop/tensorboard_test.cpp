// Event files are byte for byte those of TensorFlow's own writers; and the tags that a run writes.
#include "train/loop/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "core/error.h"
#include "kernels/checksum.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// The standard check value of CRC-32C, and RFC 3720's 32 zeros.
TEST(Crc32c, KnownValues) {
  EXPECT_EQ(kernels::crc32c("123456789", 9), 0xe3069283U);
  const std::string zeros(32, '\0');
  EXPECT_EQ(kernels::crc32c(zeros.data(), zeros.size()), 0x8a9136aaU);
}

// Made by tensorboard's own EventFileWriter, with wall_time 1.5.
TEST(Events, EqualTensorBoardsBytes) {
  EXPECT_EQ(hex(train::tfrecord(train::version_event(1.5))),
            "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
  EXPECT_EQ(hex(train::tfrecord(train::scalar_event(1.5, 300, "lm loss", 0.25F))),
            "1e00000000000000d9dc123209000000000000f83f10ac022a100a0e0a076c6d206c6f7373150000803ebeb905c7");
}

// The scalars of an event file, with every checksum checked: tag -> (step, value) in order.
using Scalars = std::map<std::string, std::vector<std::pair<int64_t, float>>>;
Scalars read_events(const std::string& folder) {
  Scalars scalars;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    for (size_t at = 0; at < bytes.size();) {
      uint64_t length = 0;
      std::memcpy(&length, bytes.data() + at, 8);
      const std::string event = bytes.substr(at + 12, length);
      EXPECT_EQ(train::tfrecord(event), bytes.substr(at, length + 16));
      at += length + 16;
      // After wall_time (9 bytes): step as a varint, then summary { value { tag, simple_value } }, all shorter than
      // 128.
      if (event[9] != 0x10) continue;
      int64_t step = 0;
      size_t i = 10;
      for (int shift = 0;; shift += 7) {
        step |= int64_t{event[i] & 0x7f} << shift;
        if ((event[i++] & 0x80) == 0) break;
      }
      i += 5;  // 2a, its length, 0a, its length, 0a
      const std::string tag = event.substr(i + 1, static_cast<size_t>(event[i]));
      float value = 0;
      std::memcpy(&value, event.data() + event.size() - 4, 4);
      scalars[tag].emplace_back(step, value);
    }
  }
  return scalars;
}

TEST(Events, ContainMegatronsTagsOfEveryLoggedStep) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 4;
  config.training.eval_iters = 1;
  config.training.eval_interval = 4;
  config.data.split = "50,50,0";
  config.logger.tensorboard_dir = folder / "events";
  config.logger.tensorboard_log_interval = 2;
  config.logger.tensorboard_queue_size = 3;
  config.logger.log_loss_scale_to_tensorboard = false;
  config.logger.log_world_size_to_tensorboard = true;
  config.logger.log_validation_ppl_to_tensorboard = true;
  const auto summary = test::run_on_threads(config, 1);
  const Scalars scalars = read_events(config.logger.tensorboard_dir);
  ASSERT_EQ(scalars.count("lm loss"), 1U);
  using Points = std::vector<std::pair<int64_t, float>>;
  EXPECT_EQ(scalars.at("lm loss"),
            (Points{{2, static_cast<float>(summary.steps[1].loss)}, {4, static_cast<float>(summary.steps[3].loss)}}));
  EXPECT_EQ(scalars.at("lm loss vs samples")[1].first, 16);
  EXPECT_EQ(scalars.at("grad-norm").size(), 2U);
  EXPECT_EQ(scalars.at("learning-rate")[0].second, static_cast<float>(3e-3));
  EXPECT_EQ(scalars.at("world-size"), (Points{{2, 1}, {4, 1}}));
  EXPECT_EQ(scalars.at("lm loss validation"), (Points{{4, static_cast<float>(summary.validation_loss)}}));
  EXPECT_EQ(scalars.count("lm loss validation ppl"), 1U);
  EXPECT_EQ(scalars.count("loss-scale"), 0U);
  EXPECT_EQ(scalars.count("batch-size"), 0U);
  EXPECT_EQ(scalars.count("iteration-time"), 0U);
}

TEST(Events, OmitNumbersThatAStepLacks) {
  test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 3;
  config.training.iterations_to_skip = {2};
  config.logger.tensorboard_dir = folder / "events";
  config.logger.log_timers_to_tensorboard = true;
  config.logger.log_throughput = true;
  test::run_on_threads(config, 1);
  const Scalars scalars = read_events(config.logger.tensorboard_dir);
  for (const char* tag : {"lm loss", "lm loss vs samples", "grad-norm", "throughput"}) {
    EXPECT_EQ(scalars.at(tag).size(), 2U) << tag;
  }
  EXPECT_EQ(scalars.at("lm loss")[1].first, 3);
  EXPECT_EQ(scalars.at("learning-rate").size(), 3U);
}

TEST(Events, AreWrittenAtTheQueueSizeOrTimeLimit) {
  test::TemporaryFolder folder;
  const auto written = [&](const char* name, double flush_s) {
    train::EventWriter writer(folder / name, 3, flush_s);
    std::vector<size_t> counts;
    for (int64_t step = 1; step <= 4; ++step) {
      writer.add_scalar("x", 1, step);
      counts.push_back(read_events(folder / name)["x"].size());
    }
    return counts;
  };
  EXPECT_EQ(written("patient", 1e9), (std::vector<size_t>{0, 0, 3, 3}));
  EXPECT_EQ(read_events(folder / "patient")["x"].size(), 4U);  // the last one is written by the destructor
  EXPECT_EQ(written("hasty", 0), (std::vector<size_t>{1, 2, 3, 4}));
}

TEST(Events, UncreatableFolderIsOneError) {
  test::TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_THROW(train::EventWriter(folder / "file", 1), core::Error);
}

}  // namespace
}  // namespace ms
