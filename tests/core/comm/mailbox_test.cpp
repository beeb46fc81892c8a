// A rank that sleeps on another one's stamp.
#include "core/comm/detail/mailbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace ms::core::detail {
namespace {

// Two ranks of one group.
class MailboxPair : public testing::Test {
 protected:
  static constexpr uint64_t kKey = 7;

  MailboxPair() {
    for (const auto& memory : memory_) {
      memory->all[0].key = kKey;
      memory->boxes = 1;
    }
  }
  Mailbox box_of(int rank) {
    return Mailbox(memory_[static_cast<size_t>(rank)]->all[0], kKey, rank, {memory_[0].get(), memory_[1].get()});
  }

  std::unique_ptr<MailboxMemory> memory_[2] = {std::make_unique<MailboxMemory>(), std::make_unique<MailboxMemory>()};
};

TEST_F(MailboxPair, AwaitWhatThePeerHasNotSet) {
  Mailbox own = box_of(0), theirs = box_of(1);
  EXPECT_NE(own.awaited_notice(1, 0).stamp, nullptr);
  EXPECT_NE(own.awaited_end(1, 0).stamp, nullptr);
  EXPECT_NE(own.awaited_slot(1, 0).stamp, nullptr);
  ASSERT_TRUE(theirs.post_notice(theirs.next_notice(), {}, 0));
  EXPECT_EQ(own.awaited_notice(1, 0).stamp, nullptr);
  EXPECT_NE(own.awaited_end(1, 0).stamp, nullptr);
  theirs.end_notice(0);
  EXPECT_EQ(own.awaited_end(1, 0).stamp, nullptr);
  ASSERT_NE(theirs.writable(theirs.next()), nullptr);
  theirs.release(0);
  EXPECT_EQ(own.awaited_slot(1, 0).stamp, nullptr);
}

TEST_F(MailboxPair, NobodyWakesWhoSleepsOnAStampThatHasChanged) {
  Mailbox own = box_of(0), theirs = box_of(1);
  const AwaitedStamp awaited = own.awaited_notice(1, 0);
  ASSERT_TRUE(theirs.post_notice(0, {}, 0));
  EXPECT_FALSE(own.sleep(awaited));
}

// In most of the rounds, unless the machine is very busy.
TEST_F(MailboxPair, PeerWakesTheSleeper) {
  constexpr uint64_t kRounds = 500;
  int woken = 0;
  std::thread peer([&] {
    Mailbox theirs = box_of(1);
    for (uint64_t round = 0; round < kRounds; ++round) {
      while (memory_[0]->sleeps == 0) std::this_thread::yield();
      theirs.end_notice(round);
    }
  });
  Mailbox own = box_of(0);
  for (uint64_t round = 0; round < kRounds; ++round) {
    while (!own.has_ended_notice(1, round)) {
      const AwaitedStamp awaited = own.awaited_end(1, round);
      if (awaited.stamp != nullptr && own.sleep(awaited)) ++woken;
    }
  }
  peer.join();
  EXPECT_GT(woken, 0);
  EXPECT_EQ(memory_[0]->sleeps, 0U);
}

}  // namespace
}  // namespace ms::core::detail
