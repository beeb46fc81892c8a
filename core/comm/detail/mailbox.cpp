#include "core/comm/detail/mailbox.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "core/error.h"

namespace ms::core::detail {
namespace {

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

// A sleeping rank sees neither that a peer has died nor that it is to end.
constexpr timespec kLongestSleep = {.tv_sec = 0, .tv_nsec = 1'000'000};

MailboxMemory* memory_of(const Transport& transport, int rank) {
  return reinterpret_cast<MailboxMemory*>(transport.mailbox_memory(rank));
}

}  // namespace

Mailbox::Mailbox(MailBox& own, uint64_t key, int rank, std::vector<MailboxMemory*> peers)
    : own_(own),
      key_(key),
      rank_(rank),
      memory_(std::move(peers)),
      boxes_(memory_.size()),
      has_ended_(memory_.size()) {}

MailBox* Mailbox::box(int peer) {
  const auto at = static_cast<size_t>(peer);
  if (boxes_[at] != nullptr) return boxes_[at];
  MailboxMemory& memory = *memory_[at];
  const uint64_t used = memory.boxes.load(std::memory_order_acquire);
  for (uint64_t i = 0; i < used; ++i) {
    if (memory.all[i].key.load(std::memory_order_acquire) == key_) return boxes_[at] = &memory.all[i];
  }
  return nullptr;  // the rank has not opened the group yet
}

MailSlot* Mailbox::writable(uint64_t number) {
  MailSlot& slot = own_.slots[number % MailBox::kSlots];
  if (number < MailBox::kSlots) return &slot;
  const uint64_t needed = number - MailBox::kSlots + 1;
  for (int peer = 0; peer < static_cast<int>(memory_.size()); ++peer) {
    uint64_t& ended = has_ended_[static_cast<size_t>(peer)];
    if (peer == rank_ || ended >= needed) continue;
    if (const MailBox* const theirs = box(peer); theirs != nullptr)
      ended = theirs->ended.load(std::memory_order_acquire);
    if (ended < needed) return nullptr;
  }
  return &slot;
}

void Mailbox::release(uint64_t number) {
  MailSlot& slot = own_.slots[number % MailBox::kSlots];
  slot.ended = ended_;
  slot.stamp.store(number + 1, std::memory_order_release);
  wake_members();
}

const MailSlot* Mailbox::readable(int peer, uint64_t number) {
  MailBox* const theirs = box(peer);
  if (theirs == nullptr) return nullptr;
  const MailSlot& slot = theirs->slots[number % MailBox::kSlots];
  if (slot.stamp.load(std::memory_order_acquire) != number + 1) return nullptr;
  uint64_t& ended = has_ended_[static_cast<size_t>(peer)];
  ended = std::max(ended, slot.ended);
  return &slot;
}

bool Mailbox::post_notice(uint64_t number, const Announcement& announcement, int64_t offset) {
  if (box(0) == nullptr) return false;
  if (number >= MailBox::kNotices && !have_all(NoticePoint::kEnded, number - MailBox::kNotices)) return false;
  Notice& own = notice(own_, number);
  own.announcement = announcement;
  own.offset = offset;
  own.stamp.store(number + 1, std::memory_order_release);
  add_to(NoticePoint::kPosted, number);
  return true;
}

void Mailbox::end_notice(uint64_t number) {
  notice(own_, number).ended.store(number + 1, std::memory_order_release);
  add_to(NoticePoint::kEnded, number);
}

const Notice* Mailbox::notice_of(int peer, uint64_t number) {
  MailBox* const theirs = box(peer);
  if (theirs == nullptr) return nullptr;
  const Notice& said = notice(*theirs, number);
  return said.stamp.load(std::memory_order_acquire) == number + 1 ? &said : nullptr;
}

bool Mailbox::has_ended_notice(int peer, uint64_t number) {
  MailBox* const theirs = box(peer);
  return theirs != nullptr && notice(*theirs, number).ended.load(std::memory_order_acquire) > number;
}

std::atomic<uint64_t>* Mailbox::count_of(NoticePoint point, uint64_t number) {
  MailBox* const first = box(0);
  if (first == nullptr) return nullptr;
  NoticeCounts& counts = first->counts[number % MailBox::kNotices];
  return point == NoticePoint::kPosted ? &counts.posted : &counts.ended;
}

uint32_t Mailbox::complete(uint64_t number) const {
  return static_cast<uint32_t>((number / MailBox::kNotices + 1) * memory_.size());
}

void Mailbox::add_to(NoticePoint point, uint64_t number) {
  std::atomic<uint64_t>& count = *count_of(point, number);
  uint64_t before = count.load(std::memory_order_relaxed), after = 0;
  do {
    after = static_cast<uint64_t>(rank_) << 32 | static_cast<uint32_t>(before + 1);
  } while (!count.compare_exchange_weak(before, after, std::memory_order_acq_rel, std::memory_order_relaxed));
  if (static_cast<uint32_t>(after) == complete(number)) wake_members();
}

// A count of a later operation in the same place is higher, unless it has gone round.
bool Mailbox::have_all(NoticePoint point, uint64_t number) {
  const std::atomic<uint64_t>* const count = count_of(point, number);
  if (count == nullptr) return false;
  const auto seen = static_cast<uint32_t>(count->load(std::memory_order_acquire));
  return static_cast<int32_t>(seen - complete(number)) >= 0;
}

int Mailbox::last_to(NoticePoint point, uint64_t number) {
  return static_cast<int>(count_of(point, number)->load(std::memory_order_relaxed) >> 32);
}

// Either the member that lets this rank go on sees that it sleeps, or `awaits` sees what that member has set.
bool Mailbox::sleep(FunctionRef<bool()> awaits) {
  std::atomic<uint32_t>& sleeps = memory_[static_cast<size_t>(rank_)]->sleeps;
  sleeps.store(1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool woken = awaits() && ::syscall(SYS_futex, &sleeps, FUTEX_WAIT, 1, &kLongestSleep, nullptr, 0) == 0;
  sleeps.store(0, std::memory_order_relaxed);
  return woken;
}

void Mailbox::wake_members() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (MailboxMemory* const memory : memory_) {
    if (memory->sleeps.load(std::memory_order_relaxed) != 0 && memory->sleeps.exchange(0) != 0)
      ::syscall(SYS_futex, &memory->sleeps, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
}

void Mailbox::call(int64_t sequence, const Announcement& announcement) {
  CalledCollective& called = own_.calls[static_cast<uint64_t>(sequence) % MailBox::kCalls];
  called.stamp.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  called.op_and_dtype.store(static_cast<uint64_t>(announcement.op) << 32 | static_cast<uint32_t>(announcement.dtype),
                            std::memory_order_relaxed);
  called.elements.store(announcement.elements, std::memory_order_relaxed);
  called.stamp.store(static_cast<uint64_t>(sequence) + 1, std::memory_order_release);
}

bool Mailbox::has_called(int peer, int64_t sequence, Announcement& announcement) {
  const MailBox* const theirs = box(peer);
  if (theirs == nullptr) return false;
  const CalledCollective& called = theirs->calls[static_cast<uint64_t>(sequence) % MailBox::kCalls];
  const uint64_t stamp = static_cast<uint64_t>(sequence) + 1;
  if (called.stamp.load(std::memory_order_acquire) != stamp) return false;
  const uint64_t op_and_dtype = called.op_and_dtype.load(std::memory_order_relaxed);
  announcement = {static_cast<int32_t>(op_and_dtype >> 32), static_cast<int32_t>(op_and_dtype & 0xffffffff),
                  called.elements.load(std::memory_order_relaxed)};
  std::atomic_thread_fence(std::memory_order_acquire);
  return called.stamp.load(std::memory_order_relaxed) == stamp;
}

std::shared_ptr<Mailbox> Mailboxes::open(int context, const std::vector<int>& world_ranks) {
  MailboxMemory* const own = memory_of(transport_, transport_.rank());
  if (own == nullptr) return nullptr;
  std::vector<MailboxMemory*> memory;
  uint64_t key = mixed(1, static_cast<uint64_t>(context));
  int group_rank = 0;
  for (const int world_rank : world_ranks) {
    if (world_rank == transport_.rank()) group_rank = static_cast<int>(memory.size());
    memory.push_back(memory_of(transport_, world_rank));
    if (memory.back() == nullptr) return nullptr;
    key = mixed(key, static_cast<uint64_t>(world_rank) + 1);
  }
  // The members may have opened the same group before, in other boxes.
  key = mixed(key, opened_[key]++);
  const uint64_t index = own->boxes.load(std::memory_order_relaxed);
  if (index == MailboxMemory::kBoxes) {
    throw Error(ErrorCode::kUnsupported, cat("more than ", MailboxMemory::kBoxes, " groups of ranks in one run"));
  }
  own->all[index].key.store(key, std::memory_order_relaxed);
  own->boxes.store(index + 1, std::memory_order_release);
  return std::make_shared<Mailbox>(own->all[index], key, group_rank, std::move(memory));
}

}  // namespace ms::core::detail
