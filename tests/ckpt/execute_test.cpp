// The order in which execute() calls source and sink around the copying.
#include "ckpt/execute.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/ckpt/memory_source.h"

namespace ms::ckpt {
namespace {

// A source of one tensor; records begin_one_pass() and end_one_pass().
class NotingSource final : public Source {
 public:
  NotingSource() { held_.set("a", core::TensorRole::kParam, {4, 8}, std::vector<float>(32, 1.0f)); }
  const CheckpointInfo& info() const override { return held_.info(); }
  const ShardTable& shards() const override { return held_.shards(); }
  std::string describe(int32_t shard) const override { return held_.describe(shard); }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    read_in_pass = read_in_pass && is_in_pass;
    held_.read(shard, offset, extent, out);
  }
  void begin_one_pass() override { is_in_pass = true; }
  void end_one_pass(bool all) override {
    is_in_pass = false;
    ended_with_all = all;
  }
  bool is_in_pass = false, read_in_pass = true;
  std::optional<bool> ended_with_all;

 private:
  test::MemorySource held_;
};

// Accepts every write, or keeps everything from an earlier attempt.
class KeepingSink final : public Sink {
 public:
  explicit KeepingSink(const NotingSource& source, bool keeps) : source_(source), keeps_(keeps) {}
  void begin(const CheckpointInfo&, const ShardTable&) override {}
  void write(int32_t, int64_t, int64_t, const std::byte*) override {}
  bool keep(int32_t, int64_t, int64_t, std::byte*) override { return keeps_; }
  std::filesystem::path commit() override {
    was_checked_before_commit = source_.ended_with_all.has_value();
    return "nowhere";
  }
  bool was_checked_before_commit = false;

 private:
  const NotingSource& source_;
  bool keeps_;
};

TEST(ExecuteTest, SourceIsCheckedBeforeCommit) {
  NotingSource source;
  KeepingSink sink(source, false);
  execute(source, sink, source.info(), source.shards(), {});
  EXPECT_TRUE(source.read_in_pass);
  EXPECT_TRUE(sink.was_checked_before_commit);
  EXPECT_EQ(source.ended_with_all, false);
}

TEST(ExecuteTest, KeptChunksRequireACheckOfTheWholeSource) {
  NotingSource source;
  KeepingSink sink(source, true);
  const ExecuteReport report = execute(source, sink, source.info(), source.shards(), {});
  EXPECT_EQ(report.kept_bytes, 128);
  EXPECT_EQ(source.ended_with_all, true);
}

}  // namespace
}  // namespace ms::ckpt
