#include "train/memory/swap_tier.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "core/rng.h"
#include "tests/support/fault_injection.h"
#include "tests/support/open_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::train {
namespace {

using Bytes = std::vector<std::byte>;
using test::FaultInjection;

class SwapTierTest : public testing::Test {
 protected:
  static Bytes random_bytes(size_t size) {
    static uint64_t draw = 0;
    const core::Rng rng(7, "tier");
    Bytes bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.below(draw++, 256));
    return bytes;
  }
  Bytes fetched(SwapTier::Stored& stored, size_t size) {
    Bytes out(size, std::byte{0x55});
    tier_.fetch(stored, out);
    tier_.wait(stored);
    return out;
  }

  test::TemporaryFolder folder_;
  SwapTier tier_{folder_.path().string(), 1 << 20, nullptr};
};

TEST_F(SwapTierTest, GivesBackWhatWasPutInAnyOrder) {
  std::vector<Bytes> all;
  std::vector<SwapTier::Stored> stored;
  for (size_t i = 0; i < 3 * SwapTier::kMaxQueued; ++i) all.push_back(random_bytes(1 + i * 997));
  for (const Bytes& bytes : all) stored.push_back(tier_.put(bytes));  // more than the queue has room for
  for (SwapTier::Stored& one : stored) EXPECT_TRUE(tier_.wait(one));
  for (size_t i = all.size(); i-- > 0;) {
    EXPECT_EQ(fetched(stored[i], all[i].size()), all[i]) << i;
    EXPECT_EQ(fetched(stored[i], all[i].size()), all[i]) << i << ", again";
  }
  tier_.check();
}

TEST_F(SwapTierTest, CountsWholeBlocksAndUsesPlacesAgain) {
  const Bytes bytes = random_bytes(5000);
  std::vector<SwapTier::Stored> stored;
  for (int i = 0; i < 3; ++i) stored.push_back(tier_.put(bytes));
  stored.clear();  // waits
  TierUse use = tier_.take_use();
  EXPECT_EQ(use.written_bytes, 3 * 8192);
  EXPECT_EQ(use.read_bytes, 0);
  EXPECT_EQ(use.peak_bytes, 3 * 8192);
  for (int round = 0; round < 5; ++round) {
    SwapTier::Stored again = tier_.put(bytes);
    ASSERT_TRUE(tier_.wait(again));
    EXPECT_EQ(fetched(again, bytes.size()), bytes);
  }
  use = tier_.take_use();
  EXPECT_EQ(use.written_bytes, 5 * 8192);
  EXPECT_EQ(use.read_bytes, 5 * 8192);
  EXPECT_EQ(use.peak_bytes, 8192);
  const std::vector<std::string> files = test::nameless_files(folder_.path());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(std::filesystem::file_size(files[0]), 1u << 20) << "more than was reserved";
}

TEST_F(SwapTierTest, PutsOtherBytesInTheSamePlace) {
  const Bytes first = random_bytes(5000);
  SwapTier::Stored stored = tier_.put(first);
  ASSERT_TRUE(tier_.wait(stored));
  for (int round = 0; round < 3; ++round) {
    const Bytes bytes = random_bytes(5000);
    tier_.put_again(stored, bytes);
    ASSERT_TRUE(tier_.wait(stored));
    EXPECT_EQ(fetched(stored, bytes.size()), bytes);
  }
  const TierUse use = tier_.take_use();
  EXPECT_EQ(use.written_bytes, 4 * 8192);
  EXPECT_EQ(use.peak_bytes, 8192);
}

TEST_F(SwapTierTest, LeavesNoNameInTheFolder) {
  const Bytes bytes = random_bytes(100);
  const SwapTier::Stored stored = tier_.put(bytes);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(SwapTierTest, WhatCannotBeWrittenStaysWithTheCallerAndNothingMoreIsWritten) {
  const Bytes bytes = random_bytes(5000);
  SwapTier::Stored before = tier_.put(bytes);
  ASSERT_TRUE(tier_.wait(before));
  {
    const FaultInjection full(FaultInjection::Kind::kWrite, 0, ENOSPC);
    SwapTier::Stored refused = tier_.put(bytes);
    EXPECT_FALSE(tier_.wait(refused));
  }
  const FaultInjection counting(FaultInjection::Kind::kWrite, 1 << 30, ENOSPC);
  SwapTier::Stored later = tier_.put(bytes);
  EXPECT_FALSE(tier_.wait(later));
  EXPECT_EQ(counting.calls(), 0);
  EXPECT_EQ(fetched(before, bytes.size()), bytes) << "written before the disk was full";
  EXPECT_TRUE(tier_.failed());
  const test::Thrown thrown = test::thrown_by([&] { tier_.check(); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kIo);
  EXPECT_NE(thrown.text.find(folder_.path().string()), std::string::npos) << thrown.text;
  EXPECT_NE(thrown.text.find("No space left"), std::string::npos) << thrown.text;
}

TEST_F(SwapTierTest, WhatCannotBeReadIsZeros) {
  const Bytes bytes = random_bytes(100'000);
  SwapTier::Stored stored = tier_.put(bytes);
  ASSERT_TRUE(tier_.wait(stored));
  for (const std::string& file : test::nameless_files(folder_.path())) std::filesystem::resize_file(file, 0);
  Bytes out(bytes.size(), std::byte{1});
  tier_.fetch(stored, out);
  EXPECT_FALSE(tier_.wait(stored));
  EXPECT_EQ(out, Bytes(bytes.size()));
  EXPECT_EQ(test::code_of([&] { tier_.check(); }), core::ErrorCode::kCorruptData);
}

TEST(SwapTier, ReportsAFullDiskAtTheStart) {
  const test::TemporaryFolder folder;
  const FaultInjection full(FaultInjection::Kind::kAllocate, 0, ENOSPC);
  EXPECT_EQ(test::code_of([&] { SwapTier tier(folder.path().string(), 1 << 20, nullptr); }), core::ErrorCode::kIo);
  EXPECT_EQ(full.calls(), 1);
}

}  // namespace
}  // namespace ms::train
