// The native reader returns everything that was written, and never crashes on truncated or corrupt files.
#include "profile/ingest/mstrace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "core/io/file.h"
#include "core/trace/format.h"
#include "kernels/checksum.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

using test::TraceMaker;

std::string make_trace(const std::filesystem::path& folder) {
  TraceMaker maker(folder, 3, 4);
  maker.clock(500, 40, 3);
  for (int64_t chunk = 0; chunk < 3; ++chunk) {
    const int64_t t = 1000 * chunk;
    maker.host("ProfilerStep#1", t, t + 900);
    maker.op("rms_norm", t + 10, t + 20, "[[2, 3]]", "[\"fp32\"]");
    maker.launch(static_cast<uint32_t>(chunk) + 1, t + 11, t + 12);
    maker.kernel("rms_norm_forward", t + 12, t + 19, static_cast<uint32_t>(chunk) + 1, 77, 88);
    maker.comm("send", "pp", {1, 3}, t + 30, t + 40, 5, 1);
    maker.copy("Memcpy DtoH", t + 50, t + 60, 4096);
    maker.memory(t + 70, 0x7f0000001000, 256, 256);
    maker.counter("cycles", t + 80, 1.5);
    maker.flush();
  }
  return core::read_text(maker.finish(), 1 << 20);
}

class MstraceTest : public testing::Test {
 protected:
  // Reads bytes as a file; nullopt if they are refused (which must be kCorruptData or kUnsupported).
  std::optional<int64_t> read(std::string_view bytes) {
    trace_ = std::make_unique<RankTrace>();
    file_ = {};
    stats_ = {};
    try {
      read_mstrace(bytes, "x.mstrace", *trace_, file_, stats_);
    } catch (const core::Error& e) {
      EXPECT_TRUE(e.code() == core::ErrorCode::kCorruptData || e.code() == core::ErrorCode::kUnsupported) << e.what();
      return std::nullopt;
    }
    return file_.events;
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<RankTrace> trace_;
  FileInfo file_;
  ImportStats stats_;
};

TEST_F(MstraceTest, EverythingComesBack) {
  ASSERT_EQ(read(make_trace(folder_.path())), 24);
  EXPECT_TRUE(stats_.issues().empty());
  EXPECT_FALSE(file_.truncated);
  const RankTrace& t = *trace_;
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.world_size, 4);
  EXPECT_EQ(t.pid, 4242);
  EXPECT_EQ(t.base_unix_ns, TraceMaker::kUnixBase);
  ASSERT_EQ(t.events.size(), 18u);
  EXPECT_TRUE(std::is_sorted(t.events.ts.begin(), t.events.ts.end()));
  EXPECT_EQ(t.last_end, 2900);
  ASSERT_EQ(t.clocks.size(), 1u);
  EXPECT_EQ(t.clocks[0].offset, 40);
  ASSERT_EQ(t.memory.size(), 3u);
  EXPECT_EQ(t.memory[2].address, 0x7f0000001000);
  EXPECT_EQ(t.memory[2].ts, 2070);
  ASSERT_EQ(t.counters.size(), 3u);
  EXPECT_EQ(t.counters[1].value, 1.5);
  for (size_t i = 0; i < t.events.size(); ++i) {
    const std::string& name = t.names[t.events.name[i]];
    const Details& details = t.details[t.events.details[i]];
    if (name == "rms_norm_forward") {
      EXPECT_EQ(details.flops, 77);
      EXPECT_EQ(details.bytes, 88);
      EXPECT_EQ(t.events.correlation[i], static_cast<uint32_t>(t.events.ts[i] / 1000) + 1);
    } else if (name == "rms_norm") {
      EXPECT_EQ(t.names[details.dims], "[[2, 3]]");
    } else if (name == "send(pp)") {
      const CommArgs& comm = t.comms[t.events.comm[i]];
      EXPECT_EQ(comm.sequence, t.events.ts[i] / 1000);
      EXPECT_EQ(comm.source, 3);
      EXPECT_EQ(comm.destination, 1);
      EXPECT_EQ(comm.in_elements, 5);
    }
  }
}

TEST_F(MstraceTest, ManyEventsInChunksOfAtMostAMebibyte) {
  TraceMaker maker(folder_.path(), 0, 1);
  constexpr int64_t kEvents = 100'000;
  for (int64_t i = 0; i < kEvents; ++i) maker.kernel(core::cat("kernel ", i % 97), 10 * i, 10 * i + 7);
  ASSERT_EQ(read(core::read_text(maker.finish(), 1 << 26)), kEvents);
  EXPECT_TRUE(stats_.issues().empty());
  for (int64_t i = 0; i < kEvents; i += 997) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(trace_->events.ts[at], 10 * i);
    EXPECT_EQ(trace_->names[trace_->events.name[at]], core::cat("kernel ", i % 97));
  }
}

// Of any size and sign, nested and not, with different grids in each lane, in one chunk.
TEST_F(MstraceTest, TimesComeBackToTheNanosecond) {
  std::mt19937_64 random(5);
  std::vector<std::pair<int64_t, int64_t>> wanted;
  TraceMaker maker(folder_.path(), 0, 1);
  const auto number = [&](int bits) { return static_cast<int64_t>(random() >> (63 - random() % bits)); };
  for (int i = 0; i < 3000; ++i) {
    const int64_t sign = random() % 4 == 0 ? -1 : 1;
    const int64_t start = sign * number(59), dur = number(59);
    maker.kernel("any", start, start + dur);
    wanted.emplace_back(start, dur);
    const int64_t outer = (number(40) & ~15) - 1024, inner = number(8) & ~15;
    maker.host("on a grid", outer, outer + 512);
    maker.host("inside", outer + inner % 512, outer + 512);
    wanted.emplace_back(outer, 512);
    wanted.emplace_back(outer + inner % 512, 512 - inner % 512);
  }
  ASSERT_EQ(read(core::read_text(maker.finish(), 1 << 26)), static_cast<int64_t>(wanted.size()));
  std::vector<std::pair<int64_t, int64_t>> seen;
  for (size_t i = 0; i < trace_->events.size(); ++i) seen.emplace_back(trace_->events.ts[i], trace_->events.dur[i]);
  std::sort(wanted.begin(), wanted.end());
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, wanted);
  EXPECT_TRUE(stats_.issues().empty());
}

// FORMAT.md: the low bits of a coarser clock are not stored.
TEST_F(MstraceTest, CoarserTimesTakeFewerBytes) {
  const auto bytes_of = [&](int64_t grid) {
    std::mt19937 random(3);
    TraceMaker maker(folder_.path(), 0, 1);
    int64_t t = 0;
    for (int i = 0; i < 8000; ++i) {
      const int64_t start = t + grid * (1 + static_cast<int64_t>(random() % (16000 / grid)));
      t = start + grid * (1 + static_cast<int64_t>(random() % (160000 / grid)));
      maker.kernel(core::cat("kernel ", i % 7), start, t);
    }
    return static_cast<double>(core::read_text(maker.finish(), 1 << 26).size()) / 8000;
  };
  const double fine = bytes_of(1), coarse = bytes_of(16);
  EXPECT_NEAR(fine - coarse, 2 * 4 / 8.0, 0.05);  // four bits of the start, four of the duration
  EXPECT_LT(coarse, 3.5);                         // 10 and 13 bits of noise
}

// An event that begins with its parent is recorded before it, perhaps in an earlier chunk.
TEST_F(MstraceTest, AParentComesBeforeAChildOfTheSameStart) {
  TraceMaker maker(folder_.path(), 0, 1);
  maker.host("child", 160, 320);
  maker.flush();
  maker.host("parent", 160, 480);
  ASSERT_EQ(read(core::read_text(maker.finish(), 1 << 20)), 2);
  EXPECT_EQ(trace_->names[trace_->events.name[0]], "parent");
  EXPECT_EQ(trace_->names[trace_->events.name[1]], "child");
}

TEST_F(MstraceTest, LongNamesSplitChunks) {
  TraceMaker maker(folder_.path(), 0, 1);
  for (int64_t i = 0; i < 300; ++i)
    maker.kernel(std::string(20'000, static_cast<char>('a' + i % 26)) + core::cat(i), i, i + 1);
  ASSERT_EQ(read(core::read_text(maker.finish(), 1 << 26)), 300);
  EXPECT_TRUE(stats_.issues().empty());
  EXPECT_EQ(trace_->names[trace_->events.name[0]].size(), core::trace::kMaxStringBytes);
}

TEST_F(MstraceTest, CutAtEveryByte) {
  const std::string whole = make_trace(folder_.path());
  int64_t before = 0;
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto events = read(std::string_view(whole).substr(0, size));
    if (!events) {
      EXPECT_EQ(before, 0) << size;
      continue;
    }
    EXPECT_TRUE(file_.truncated) << size;
    EXPECT_TRUE(stats_.data_loss()) << size;
    EXPECT_GE(*events, before) << "a longer file never gives less";
    EXPECT_EQ(*events % 8, 0) << "whole chunks only";
    before = *events;
  }
  EXPECT_EQ(before, 24) << "the footer is not needed for the events";
}

TEST_F(MstraceTest, EveryFlippedBitIsNoticed) {
  const std::string whole = make_trace(folder_.path());
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << byte % 8));
    const auto events = read(damaged);
    if (!events) continue;
    EXPECT_TRUE(!stats_.issues().empty()) << "byte " << byte;
    EXPECT_GE(*events, 16) << "byte " << byte << ": only the damaged chunk is lost";
    if (*events < 24) {
      EXPECT_EQ(stats_.issues().at("lost_events").count, 24 - *events) << "byte " << byte;
      EXPECT_TRUE(stats_.data_loss());
    }
  }
}

// Damage with a valid checksum, as from a broken or hostile writer. Never a crash, never more events than bytes.
TEST_F(MstraceTest, PayloadsThatLie) {
  const std::string whole = make_trace(folder_.path());
  const char* given = std::getenv("MS_TEST_SEED");
  const auto seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device{}();
  SCOPED_TRACE("MS_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto repair = [](std::string& bytes, size_t chunk) {
    uint32_t size = 0;
    std::memcpy(&size, bytes.data() + chunk + 4, 4);
    const uint64_t checksum = kernels::xxh3(bytes.data() + chunk + 16, size);
    std::memcpy(bytes.data() + chunk + 8, &checksum, 8);
    return chunk + 16 + size;
  };
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = whole;
    for (size_t n = random() % 3 + 1; n > 0; --n)
      bytes[8 + random() % (bytes.size() - 8)] = static_cast<char>(random());
    for (size_t chunk = 8; chunk + 16 < bytes.size();) {
      uint32_t size = 0;
      std::memcpy(&size, bytes.data() + chunk + 4, 4);
      if (size > bytes.size() - chunk - 16) break;
      chunk = repair(bytes, chunk);
    }
    EXPECT_LE(read(bytes).value_or(0), 24 * 40);
  }
}

// The same below the compression: encoded payloads with changed bytes.
TEST_F(MstraceTest, EncodedEventsThatLie) {
  core::trace::Tables tables;
  tables.lanes.push_back({core::trace::LaneKind::kStream, 7, tables.intern("stream 7")});
  tables.comms.push_back({tables.intern("send"), tables.intern("pp"), tables.intern("[0, 1]"), tables.intern("fp32")});
  tables.shapes.push_back({tables.intern("[[1]]"), tables.intern("[]")});
  std::vector<core::trace::Event> events(6);
  for (size_t i = 0; i < events.size(); ++i) {
    events[i].kind = i % 2 == 0 ? core::trace::EventKind::kComm : core::trace::EventKind::kKernel;
    events[i].start_ns = static_cast<int64_t>(100 * i);
    events[i].dur_ns = 50;
    events[i].name = tables.intern(core::cat("name ", i));
    if (i % 2 == 1) {
      events[i].flags = core::trace::kHasFlops | core::trace::kHasStack | core::trace::kHasShape;
      events[i].stack = tables.intern_stack(tables.intern_stack(0, tables.intern("a")), tables.intern("b"));
    }
  }
  const std::string payload = core::trace::encode_events(events, tables).payload;
  std::mt19937 random(7);
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = payload;
    for (size_t n = random() % 4 + 1; n > 0; --n) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    EXPECT_LE(read(test::file_of_payload(bytes, 6)).value_or(0), 1000);
  }
}

TEST_F(MstraceTest, ANewerVersionIsRefusedByName) {
  const std::string bytes = test::file_of_payload("x", 0, core::trace::kFormatVersion + 1);
  EXPECT_THROW(
      {
        try {
          RankTrace trace;
          read_mstrace(bytes, "new.mstrace", trace, file_, stats_);
        } catch (const core::Error& e) {
          EXPECT_EQ(e.code(), core::ErrorCode::kUnsupported);
          EXPECT_THAT(e.what(), testing::HasSubstr("new.mstrace"));
          throw;
        }
      },
      core::Error);
}

TEST_F(MstraceTest, DroppedEventsAreCounted) {
  TraceMaker maker(folder_.path(), 0, 1);
  maker.kernel("a", 0, 1);
  ASSERT_EQ(read(core::read_text(maker.finish(/*dropped=*/12), 1 << 20)), 1);
  EXPECT_EQ(stats_.issues().at("dropped_events").count, 12);
  EXPECT_TRUE(stats_.data_loss());
}

TEST_F(MstraceTest, WhatIsAppendedIsNoticed) {
  const std::string whole = make_trace(folder_.path());
  ASSERT_EQ(read(whole + "x"), 24);
  EXPECT_EQ(stats_.issues().count("damaged_chunk"), 1u);
  EXPECT_FALSE(file_.truncated);
}

}  // namespace
}  // namespace ms::profile
