// Notices, and ranks that sleep until others have come.
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

TEST_F(MailboxPair, CountWhoHasComeToEachPoint) {
  Mailbox own = box_of(0), theirs = box_of(1);
  for (uint64_t number = 0; number < 3 * MailBox::kNotices; ++number) {
    EXPECT_FALSE(own.have_all(NoticePoint::kPosted, number));
    ASSERT_TRUE(theirs.post_notice(number, {}, 0));
    EXPECT_FALSE(theirs.have_all(NoticePoint::kPosted, number));
    ASSERT_TRUE(own.post_notice(number, {}, 0));
    EXPECT_TRUE(theirs.have_all(NoticePoint::kPosted, number));
    EXPECT_EQ(own.last_to(NoticePoint::kPosted, number), 0);

    own.end_notice(number);
    EXPECT_FALSE(own.have_all(NoticePoint::kEnded, number));
    theirs.end_notice(number);
    EXPECT_TRUE(own.have_all(NoticePoint::kEnded, number));
    EXPECT_EQ(own.last_to(NoticePoint::kEnded, number), 1);
  }
}

TEST_F(MailboxPair, NoticeWaitsForTheEndOfTheOneInItsPlace) {
  Mailbox own = box_of(0), theirs = box_of(1);
  for (uint64_t number = 0; number < MailBox::kNotices; ++number) {
    ASSERT_TRUE(own.post_notice(number, {}, 0));
    ASSERT_TRUE(theirs.post_notice(number, {}, 0));
    own.end_notice(number);
    if (number > 0) theirs.end_notice(number);
  }
  EXPECT_FALSE(own.post_notice(MailBox::kNotices, {}, 0));
  theirs.end_notice(0);
  EXPECT_TRUE(own.post_notice(MailBox::kNotices, {}, 0));
}

TEST_F(MailboxPair, RankThatAwaitsNothingDoesNotSleep) {
  Mailbox own = box_of(0);
  EXPECT_FALSE(own.sleep([] { return false; }));
  EXPECT_EQ(memory_[0]->sleeps, 0U);
}

TEST_F(MailboxPair, PeerThatComesWhileTheRankLiesDownKeepsItAwake) {
  Mailbox own = box_of(0), theirs = box_of(1);
  own.end_notice(0);
  EXPECT_FALSE(own.sleep([&] {
    theirs.end_notice(0);
    return true;
  }));
  EXPECT_FALSE(own.sleep([&] {
    theirs.writable(theirs.next());
    theirs.release(0);
    return true;
  }));
}

TEST_F(MailboxPair, PeerThatIsNotTheLastWakesNobody) {
  Mailbox own = box_of(0), theirs = box_of(1);
  memory_[0]->sleeps = 1;
  theirs.end_notice(0);
  EXPECT_EQ(memory_[0]->sleeps, 1U);
  memory_[1]->sleeps = 1;
  own.end_notice(0);
  EXPECT_EQ(memory_[1]->sleeps, 0U);
}

// In most of the rounds, unless the machine is very busy.
TEST_F(MailboxPair, LastOneWakesTheSleeper) {
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
    own.end_notice(round);
    const auto awaits = [&] { return !own.have_all(NoticePoint::kEnded, round); };
    while (awaits()) {
      if (own.sleep(awaits)) ++woken;
    }
  }
  peer.join();
  EXPECT_GT(woken, 0);
  EXPECT_EQ(memory_[0]->sleeps, 0U);
}

}  // namespace
}  // namespace ms::core::detail
