// A native file from a store: the same events again; nothing is left of one that cannot be.
#include "profile/report/native_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

TEST(NativeTrace, TheSameEventsAndTheSameBytes) {
  const test::TemporaryFolder folder;
  test::TraceMaker maker(folder.path(), 0, 1);
  maker.host("ProfilerStep#1", 0, 1000);
  maker.launch(7, 100, 110);
  maker.kernel("gemm", 120, 300, 7, 6000, 300);
  const Store store = load({maker.finish()}, {});
  const std::string once = folder / "once.mstrace", twice = folder / "twice.mstrace";
  write_native_trace(*store.ranks[0], once);
  const Store again = load({once}, {});
  const Events &before = store.ranks[0]->events, &after = again.ranks[0]->events;
  ASSERT_EQ(after.size(), before.size());
  EXPECT_TRUE(std::ranges::equal(after.ts, before.ts));
  EXPECT_TRUE(std::ranges::equal(after.dur, before.dur));
  EXPECT_TRUE(std::ranges::equal(after.correlation, before.correlation));
  write_native_trace(*again.ranks[0], twice);
  EXPECT_EQ(test::read_file(once), test::read_file(twice));
}

TEST(NativeTrace, OfAnotherProfilerNothingIsWritten) {
  const test::TemporaryFolder folder;
  const auto thrown = test::thrown_by([&] { write_native_trace(RankTrace(), folder / "x.mstrace"); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace ms::profile
