// A store outside memory for bytes between their production and their use: a file that one background thread writes and
// reads, in the order of the requests (core/io/scratch_file.h).
//
//   auto stored = tier.put(bytes);   // returns at once; bytes must stay
//   if (tier.wait(stored)) free(bytes);
//   tier.fetch(stored, room);        // returns at once
//   tier.wait(stored);               // room has the bytes
//
// A disk that fails does not throw here: in a step other ranks wait for this one's messages. What cannot be written
// stays with the caller, what cannot be read is zeros, nothing more is written, and check() throws the first error,
// where all ranks can throw it together.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/io/scratch_file.h"
#include "core/trace/recorder.h"

namespace ms::train {

// What a tier has done. Bytes are of whole blocks of the file.
struct TierUse {
  int64_t written_bytes = 0, read_bytes = 0;
  int64_t peak_bytes = 0;  // stored at once
  double wait_s = 0;       // that wait() has waited
};

class SwapTier {
 public:
  // Some bytes on the tier; the place is given back with the object, which waits for what is under way there. Must not
  // outlive the tier.
  class Stored {
   public:
    Stored() = default;
    Stored(Stored&& other) noexcept { *this = std::move(other); }
    Stored& operator=(Stored&& other) noexcept;
    ~Stored() { give_back(); }
    void give_back();

   private:
    friend class SwapTier;
    Stored(SwapTier* tier, size_t place) : tier_(tier), place_(place) {}
    SwapTier* tier_ = nullptr;
    size_t place_ = 0;
  };

  // folder: where the file is, which has no name. reserve_bytes: of the disk, at once, so that a full one is reported
  // here. recorder: of the spans swap_out and swap_in; may be null. Throws kNotFound, kIo.
  SwapTier(const std::string& folder, int64_t reserve_bytes, core::trace::Recorder* recorder);
  ~SwapTier();  // what is under way is finished
  SwapTier(const SwapTier&) = delete;
  SwapTier& operator=(const SwapTier&) = delete;

  // One thread calls these. put() and fetch() block while kMaxQueued requests wait.
  static constexpr size_t kMaxQueued = 32;
  // Starts writing `bytes`, which must stay as they are until wait().
  Stored put(std::span<const std::byte> bytes);
  // The same of other bytes, as many, in place of those stored; after wait() for these.
  void put_again(Stored& stored, std::span<const std::byte> bytes);
  // Starts reading into `out`, of as many bytes as were put; after wait() has returned true for the write.
  void fetch(Stored& stored, std::span<std::byte> out);
  // Waits for the last request. false: it has failed.
  bool wait(Stored& stored);

  bool failed() const;
  void check() const;  // throws the first error, if any
  bool is_in_memory() const { return file_.is_in_memory(); }
  // Since the last call; peak_bytes starts from what is stored.
  TierUse take_use();

 private:
  enum class State : uint8_t { kFree, kUnderWay, kDone, kFailed };
  struct Place {
    int64_t offset, block_bytes;
    State state;
  };
  struct Request {
    size_t place = 0;
    bool writes = false;
    std::byte* memory = nullptr;  // only read from if `writes`
    size_t size_bytes = 0;
  };
  // Places of one size that are free.
  struct FreePlaces {
    int64_t block_bytes;
    std::vector<size_t> places;
  };
  FreePlaces& free_places(int64_t block_bytes);
  size_t take_place(int64_t block_bytes);
  void enqueue(const Request& request);
  void serve();  // of the thread
  bool execute(const Request& request, int64_t offset, bool refuses);

  core::ScratchFile file_;
  core::trace::Recorder* recorder_;
  mutable std::mutex mutex_;
  std::condition_variable asked_, done_;
  std::array<Request, kMaxQueued> queue_;  // a ring
  size_t first_ = 0, queued_ = 0;
  bool stop_ = false;
  std::vector<Place> places_;
  std::vector<FreePlaces> free_;
  int64_t end_ = 0;  // of the file's used part
  int64_t stored_bytes_ = 0;
  TierUse use_;
  std::optional<core::Error> failure_;
  std::thread thread_;
};

}  // namespace ms::train
