// Memory through which the ranks of one machine exchange small things without messages (Transport::mailbox_memory):
// each rank writes into boxes of its own, one for each group, and reads those of the others.
//
// A box has a few slots. The n-th mailed operation of a group uses slot n % kSlots of every member's box; a rank writes
// into its slot again when all others have ended the operation that was there before. The same holds for notices, by
// which operations in each other's buffers begin and end. A box also tells the latest
// collectives that its rank has called, mailed or not, so that ranks in different ones see it.
//
// A rank that waits can sleep until members of its groups wake it (futex(2)): where ranks share cores, those that poll
// and yield take turns with those that compute. Notices are counted in the box of the group's first rank, so that only
// the last one to come wakes the others.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/comm/comm_op.h"
#include "core/comm/transport.h"
#include "core/function_ref.h"

namespace ms::core::detail {

// What members of a group must agree on.
struct Announcement {
  int32_t op = 0, dtype = 0;
  int64_t elements = 0;
  bool operator==(const Announcement&) const = default;
};

// Of a rank in a group. Lies in memory that is zero at first.
struct MailSlot {
  std::atomic<uint64_t> stamp;  // number of the operation + 1, set when the rest is there
  uint64_t ended;               // operations that this rank had ended by then
  Announcement announcement;
  std::array<std::byte, kSmallAllreduceBytes> data;
};
// Of a rank in a group: where the buffer of an operation lies that the others read and write themselves (direct.h).
struct alignas(64) Notice {
  std::atomic<uint64_t> stamp;  // number of the operation + 1, set when the rest is there
  std::atomic<uint64_t> ended;  // the same, set when this rank has done its part in all buffers
  Announcement announcement;
  int64_t offset;  // of the buffer in the rank's range; -1: outside of it
};
// How many notices of one place the members of a group have posted and ended, of all operations that were there. The
// lower half counts, the upper one is the group rank that was the last so far.
struct alignas(64) NoticeCounts {
  std::atomic<uint64_t> posted, ended;
};
struct CalledCollective {
  std::atomic<uint64_t> stamp;  // its sequence number in the group + 1; 0 while it is written
  std::atomic<uint64_t> op_and_dtype;
  std::atomic<int64_t> elements;
};
struct MailBox {
  static constexpr uint64_t kSlots = 4, kCalls = 16, kNotices = 16;
  std::atomic<uint64_t> key;    // of the group
  std::atomic<uint64_t> ended;  // mailed operations that this rank has ended
  alignas(64) std::array<CalledCollective, kCalls> calls;
  std::array<Notice, kNotices> notices;
  std::array<NoticeCounts, kNotices> counts;  // of the group; used in the box of its first rank
  struct alignas(64) Slot : MailSlot {};
  std::array<Slot, kSlots> slots;
};
// Of a rank in all groups.
struct MailboxMemory {
  static constexpr uint64_t kBoxes = 256;
  std::atomic<uint64_t> boxes;   // in use, the first ones
  std::atomic<uint32_t> sleeps;  // 1 while the rank does; whoever sets it to 0 wakes it
  struct alignas(4096) Box : MailBox {};
  std::array<Box, kBoxes> all;
};
static_assert(sizeof(MailboxMemory) <= kMailboxBytes && std::atomic<uint64_t>::is_always_lock_free);

// The two points of an operation in shared buffers at which every member waits for all others.
enum class NoticePoint : uint8_t { kPosted, kEnded };

// The boxes of a group's members, as one of them sees them.
class Mailbox {
 public:
  // own: a new box, in which nobody else looks for this key yet. peers: memory of each member, by group rank.
  Mailbox(MailBox& own, uint64_t key, int rank, std::vector<MailboxMemory*> peers);

  // Every rank of the group numbers its mailed operations alike.
  uint64_t next() { return posted_++; }
  // Where this rank writes operation `number`; null as long as a member may still read what is there.
  MailSlot* writable(uint64_t number);
  // Lets the others read what has been written, and wakes those that sleep.
  void release(uint64_t number);
  // What a member has written for operation `number`; null: nothing yet.
  const MailSlot* readable(int peer, uint64_t number);
  // Operations end in their order.
  bool is_next_to_end(uint64_t number) const { return ended_ == number; }
  void end(uint64_t number) {
    ended_ = number + 1;
    own_.ended.store(ended_, std::memory_order_release);
  }

  // Operations in shared buffers have numbers of their own.
  uint64_t next_notice() { return notices_++; }
  // False as long as a member may still read what is in that place.
  bool post_notice(uint64_t number, const Announcement& announcement, int64_t offset);
  const Notice* notice_of(int peer, uint64_t number);  // null: nothing yet
  void end_notice(uint64_t number);
  bool has_ended_notice(int peer, uint64_t number);
  // Whether all members have come to that point.
  bool have_all(NoticePoint point, uint64_t number);
  int last_to(NoticePoint point, uint64_t number);  // the last of them, once all have

  // Returns when a member of one of this rank's groups has woken it (true), or after a millisecond. awaits: asked once
  // more when the others see that this rank sleeps; if it is false, the rank does not.
  bool sleep(FunctionRef<bool()> awaits);

  // This rank calls collective `sequence` of the group.
  void call(int64_t sequence, const Announcement& announcement);
  // What a member has said of that collective. False: nothing, or no more.
  bool has_called(int peer, int64_t sequence, Announcement& announcement);

 private:
  static Notice& notice(MailBox& box, uint64_t number) { return box.notices[number % MailBox::kNotices]; }
  MailBox* box(int peer);
  void wake_members();
  std::atomic<uint64_t>* count_of(NoticePoint point, uint64_t number);  // null: the first rank has no box yet
  uint32_t complete(uint64_t number) const;                             // the count when all have come
  void add_to(NoticePoint point, uint64_t number);                      // the last one wakes the others

  MailBox& own_;
  uint64_t key_;
  int rank_;
  std::vector<MailboxMemory*> memory_;
  std::vector<MailBox*> boxes_;      // null: not found yet
  std::vector<uint64_t> has_ended_;  // how many operations each member has ended at least
  uint64_t posted_ = 0, ended_ = 0, notices_ = 0;
};

// Opens boxes in the memory of a transport, which must outlive it.
class Mailboxes {
 public:
  explicit Mailboxes(Transport& transport) : transport_(transport) {}
  // null if the members cannot read each other's memory. Local, but every member must open it.
  std::shared_ptr<Mailbox> open(int context, const std::vector<int>& world_ranks);

 private:
  Transport& transport_;
  std::map<uint64_t, uint64_t> opened_;  // how often each group
};

}  // namespace ms::core::detail
