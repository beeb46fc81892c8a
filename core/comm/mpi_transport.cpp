#include "core/comm/mpi_transport.h"

#define OMPI_SKIP_MPICXX 1  // the C++ bindings, removed in MPI 3, would need a library of their own
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/process_home.h"
#include "core/comm/shared_ranges.h"
#include "core/error.h"

namespace ms::core {
namespace {

constexpr int64_t kMaxPieceBytes = int64_t{1} << 30;  // MPI 3.1 counts are int

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorCode::kPeerFailed, cat(what, ": ", std::string(text, static_cast<size_t>(length))));
}

class MpiRequest final : public TransferRequest {
 public:
  MpiRequest(std::vector<MPI_Request> requests, int64_t receive_bytes)
      : requests_(std::move(requests)), receive_bytes_(receive_bytes) {}
  ~MpiRequest() override {
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }
  bool test() override {
    if (done_) return true;
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      int complete = 0;
      MPI_Status status;
      check(MPI_Test(&request, &complete, &status), "MPI_Test");
      if (complete == 0) return false;
      if (receive_bytes_ < 0) continue;
      int count = 0;
      MPI_Get_count(&status, MPI_BYTE, &count);
      received_ += count;
    }
    done_ = true;
    MS_CHECK(receive_bytes_ < 0 || received_ == receive_bytes_, "received ", received_, " bytes, expected ",
             receive_bytes_);
    return true;
  }

 private:
  std::vector<MPI_Request> requests_;
  int64_t receive_bytes_;  // < 0 for a send
  int64_t received_ = 0;
  bool done_ = false;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport() {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    const Process own{own_home(), ::getpid()};
    processes_.resize(static_cast<size_t>(size_));
    check(MPI_Allgather(&own, sizeof own, MPI_BYTE, processes_.data(), sizeof own, MPI_BYTE, comm_), "MPI_Allgather");
    std::map<std::string, int> numbers;
    for (const Process& process : processes_) {
      const std::string name = cat(process.home.boot, ' ', process.home.host);
      machines_.push_back(numbers.try_emplace(name, static_cast<int>(numbers.size())).first->second);
    }
  }
  ~MpiTransport() override {
    if (comm_ != MPI_COMM_WORLD) MPI_Comm_free(&comm_);
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<TransferRequest> isend(const void* data, int64_t size_bytes, int peer, int32_t tag) override {
    std::vector<MPI_Request> requests;
    const char* bytes = static_cast<const char*>(data);
    for (int64_t begin = 0; begin == 0 || begin < size_bytes; begin += kMaxPieceBytes) {
      const auto count = static_cast<int>(std::min(kMaxPieceBytes, size_bytes - begin));
      check(MPI_Isend(bytes + begin, count, MPI_BYTE, peer, tag, comm_, &requests.emplace_back()), "MPI_Isend");
    }
    return std::make_unique<MpiRequest>(std::move(requests), -1);
  }
  std::unique_ptr<TransferRequest> irecv(void* data, int64_t size_bytes, int peer, int32_t tag) override {
    std::vector<MPI_Request> requests;
    char* bytes = static_cast<char*>(data);
    for (int64_t begin = 0; begin == 0 || begin < size_bytes; begin += kMaxPieceBytes) {
      const auto count = static_cast<int>(std::min(kMaxPieceBytes, size_bytes - begin));
      check(MPI_Irecv(bytes + begin, count, MPI_BYTE, peer, tag, comm_, &requests.emplace_back()), "MPI_Irecv");
    }
    return std::make_unique<MpiRequest>(std::move(requests), size_bytes);
  }
  void share(const std::optional<SharedRange>& own) override {
    mailbox_ = std::make_unique<SharedFile>(own ? kMailboxBytes : 0);
    const SharedRange& box = mailbox_->range();
    struct Memory {
      SharedRanges::Address range, box;
    } mine{{::getpid(), own ? own->file : -1, own ? own->size_bytes : 0}, {::getpid(), box.file, box.size_bytes}};
    std::vector<Memory> all(static_cast<size_t>(size_));
    check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm_), "MPI_Allgather");
    ranges_ = std::make_unique<SharedRanges>(size_, rank_, own.value_or(SharedRange{}));
    mailboxes_ = std::make_unique<SharedRanges>(size_, rank_, box);
    char shares = own && box.begin != nullptr ? 1 : 0;
    for (int peer = 0; peer < size_ && shares != 0; ++peer) {
      if (peer == rank_ || !is_near(peer)) continue;
      const Memory& theirs = all[static_cast<size_t>(peer)];
      const bool maps_range = theirs.range.size_bytes == 0 || ranges_->map(peer, theirs.range);
      if (!maps_range || !mailboxes_->map(peer, theirs.box)) shares = 0;
    }
    shares_.resize(static_cast<size_t>(size_));
    check(MPI_Allgather(&shares, 1, MPI_BYTE, shares_.data(), 1, MPI_BYTE, comm_), "MPI_Allgather");
    for (int peer = 0; peer < size_; ++peer) {
      if (shares_with(peer)) continue;
      ranges_->unmap(peer);
      mailboxes_->unmap(peer);
    }
  }
  std::byte* mailbox_memory(int of_rank) const override {
    return mailboxes_ != nullptr && shares_with(of_rank) ? mailboxes_->at(of_rank, 0) : nullptr;
  }
  bool shares_with(int peer) const override {
    return ranges_ != nullptr && shares_[static_cast<size_t>(rank_)] != 0 && shares_[static_cast<size_t>(peer)] != 0 &&
           is_near(peer);
  }
  int64_t shared_offset(const void* data, int64_t size_bytes) const override {
    return ranges_ == nullptr ? -1 : ranges_->offset_of(data, size_bytes);
  }
  std::byte* shared_address(int peer, int64_t offset) const override { return ranges_->at(peer, offset); }
  int machine_of(int rank) const override { return machines_[static_cast<size_t>(rank)]; }
  int32_t max_tag() const override {
    int* bound = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found), "MPI_Comm_get_attr");
    return found != 0 ? *bound : 32767;  // what MPI promises at least
  }
  // Detects the end of a process of the same kernel and PID namespace. For a process on another host or in another
  // container it returns true, because it cannot know; the death shows when the wait times out.
  bool peer_lives(int peer) const override {
    return !is_near(peer) || process_state(processes_[static_cast<size_t>(peer)].pid) != ProcessState::kDead;
  }
  std::unique_ptr<Transport> duplicate() override {
    auto other = std::unique_ptr<MpiTransport>(new MpiTransport(rank_, size_, processes_, machines_));
    check(MPI_Comm_dup(comm_, &other->comm_), "MPI_Comm_dup");
    return other;
  }
  bool takes_turns() const override { return thread_level() >= MPI_THREAD_SERIALIZED; }
  bool any_thread() const override { return thread_level() == MPI_THREAD_MULTIPLE; }

 private:
  static int thread_level() {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    return level;
  }
  struct Process {
    flight::Home home;
    int64_t pid;
  };
  MpiTransport(int rank, int size, std::vector<Process> processes, std::vector<int> machines)
      : rank_(rank), size_(size), processes_(std::move(processes)), machines_(std::move(machines)) {}
  // Of the same kernel and PID namespace.
  bool is_near(int peer) const {
    return see_each_other(processes_[static_cast<size_t>(peer)].home, processes_[static_cast<size_t>(rank_)].home);
  }
  MPI_Comm comm_ = MPI_COMM_WORLD;  // owned unless it is MPI_COMM_WORLD
  int rank_ = 0, size_ = 1;
  std::vector<Process> processes_;                    // by rank
  std::vector<int> machines_;                         // by rank
  std::unique_ptr<SharedFile> mailbox_;               // null, as the next two: share() was not called
  std::unique_ptr<SharedRanges> ranges_, mailboxes_;  // of the ranks that share memory
  std::vector<char> shares_;                          // by rank: whether it has mapped all near ones
};

}  // namespace

MpiSession::MpiSession(MpiThreads threads) {
  int provided = 0;
  const int wanted = threads == MpiThreads::kAny ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
  if (MPI_Init_thread(nullptr, nullptr, wanted, &provided) != MPI_SUCCESS || provided < MPI_THREAD_FUNNELED) {
    throw Error(ErrorCode::kIo, "MPI_Init_thread failed, or gives less than MPI_THREAD_FUNNELED");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

MpiSession::~MpiSession() { MPI_Finalize(); }

std::unique_ptr<Transport> MpiSession::transport() const { return std::make_unique<MpiTransport>(); }

int MpiSession::local_size() const {
  MPI_Comm local = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
  int size = 1;
  MPI_Comm_size(local, &size);
  MPI_Comm_free(&local);
  return size;
}

void MpiSession::abort(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  ::_exit(exit_code);
}

}  // namespace ms::core
