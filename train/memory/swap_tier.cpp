#include "train/memory/swap_tier.h"

#include <algorithm>
#include <cstring>

#include "core/trace/span.h"

namespace ms::train {

using core::trace::Category;
using core::trace::Span;

SwapTier::Stored& SwapTier::Stored::operator=(Stored&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  tier_ = std::exchange(other.tier_, nullptr);
  place_ = other.place_;
  return *this;
}

void SwapTier::Stored::give_back() {
  SwapTier* tier = std::exchange(tier_, nullptr);
  if (tier == nullptr) return;
  std::unique_lock lock(tier->mutex_);
  Place& place = tier->places_[place_];
  tier->done_.wait(lock, [&] { return place.state != State::kUnderWay; });
  place.state = State::kFree;
  tier->stored_bytes_ -= place.block_bytes;
  tier->free_places(place.block_bytes).places.push_back(place_);
}

SwapTier::SwapTier(const std::string& folder, int64_t reserve_bytes, core::trace::Recorder* recorder)
    : file_(folder), recorder_(recorder) {
  file_.reserve(reserve_bytes);
  thread_ = std::thread([this] { serve(); });
}

SwapTier::~SwapTier() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  asked_.notify_one();
  thread_.join();
}

SwapTier::FreePlaces& SwapTier::free_places(int64_t block_bytes) {
  const auto found = std::ranges::find(free_, block_bytes, &FreePlaces::block_bytes);
  return found != free_.end() ? *found : free_.emplace_back(FreePlaces{block_bytes, {}});
}

size_t SwapTier::take_place(int64_t block_bytes) {
  std::vector<size_t>& free = free_places(block_bytes).places;
  if (!free.empty()) {
    const size_t place = free.back();
    free.pop_back();
    return place;
  }
  places_.push_back({end_, block_bytes, State::kFree});
  end_ += block_bytes;
  return places_.size() - 1;
}

SwapTier::Stored SwapTier::put(std::span<const std::byte> bytes) {
  const int64_t block_bytes = core::ScratchFile::blocks_bytes(static_cast<int64_t>(bytes.size()));
  size_t place = 0;
  {
    const std::lock_guard lock(mutex_);
    place = take_place(block_bytes);
    stored_bytes_ += block_bytes;
    use_.written_bytes += block_bytes;
    use_.peak_bytes = std::max(use_.peak_bytes, stored_bytes_);
  }
  enqueue({place, /*writes=*/true, const_cast<std::byte*>(bytes.data()), bytes.size()});
  return {this, place};
}

void SwapTier::put_again(Stored& stored, std::span<const std::byte> bytes) {
  MS_CHECK(stored.tier_ == this, "nothing is stored");
  {
    const std::lock_guard lock(mutex_);
    Place& place = places_[stored.place_];
    MS_CHECK(place.state != State::kUnderWay, "the place is in use");
    MS_CHECK(place.block_bytes == core::ScratchFile::blocks_bytes(static_cast<int64_t>(bytes.size())),
             "other bytes of another size");
    place.state = State::kFree;
    use_.written_bytes += place.block_bytes;
  }
  enqueue({stored.place_, /*writes=*/true, const_cast<std::byte*>(bytes.data()), bytes.size()});
}

void SwapTier::fetch(Stored& stored, std::span<std::byte> out) {
  MS_CHECK(stored.tier_ == this, "nothing is stored");
  enqueue({stored.place_, /*writes=*/false, out.data(), out.size()});
}

void SwapTier::enqueue(const Request& request) {
  {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return queued_ < kMaxQueued; });
    Place& place = places_[request.place];
    MS_CHECK(request.writes ? place.state == State::kFree : place.state == State::kDone, "request for a place in use");
    place.state = State::kUnderWay;
    if (!request.writes) use_.read_bytes += place.block_bytes;
    queue_[(first_ + queued_++) % kMaxQueued] = request;
  }
  asked_.notify_one();
}

bool SwapTier::wait(Stored& stored) {
  MS_CHECK(stored.tier_ == this, "nothing is stored");
  std::unique_lock lock(mutex_);
  const Place& place = places_[stored.place_];
  if (place.state == State::kUnderWay) {
    const Span waiting(recorder_, Category::kUserAnnotation, "swap_wait");
    const int64_t start_ns = core::trace::now_ns();
    done_.wait(lock, [&] { return place.state != State::kUnderWay; });
    use_.wait_s += static_cast<double>(core::trace::now_ns() - start_ns) * 1e-9;
  }
  return place.state == State::kDone;
}

void SwapTier::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    asked_.wait(lock, [&] { return stop_ || queued_ > 0; });
    if (queued_ == 0) return;
    const Request request = queue_[first_];
    const int64_t offset = places_[request.place].offset;
    const bool refuses = failure_.has_value();
    lock.unlock();
    const bool done = execute(request, offset, refuses);
    lock.lock();
    first_ = (first_ + 1) % kMaxQueued;
    --queued_;
    places_[request.place].state = done ? State::kDone : State::kFailed;
    done_.notify_all();
  }
}

bool SwapTier::execute(const Request& request, int64_t offset, bool refuses) {
  if (request.writes && refuses) return false;
  const auto size_bytes = static_cast<int64_t>(request.size_bytes);
  const Span span(recorder_, Category::kMemcpy, request.writes ? "swap_out" : "swap_in", -1, size_bytes);
  const auto fail = [&](core::Error error) {
    if (!request.writes) std::memset(request.memory, 0, request.size_bytes);
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_.emplace(std::move(error));
    return false;
  };
  try {
    if (request.writes) {
      file_.write({request.memory, request.size_bytes}, offset);
    } else {
      file_.read({request.memory, request.size_bytes}, offset);
    }
    return true;
  } catch (const core::Error& e) {
    return fail(e);
  } catch (const std::exception& e) {
    return fail({core::ErrorCode::kOutOfMemory, e.what()});
  }
}

bool SwapTier::failed() const {
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

void SwapTier::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw core::Error(*failure_);
}

TierUse SwapTier::take_use() {
  const std::lock_guard lock(mutex_);
  return std::exchange(use_, TierUse{.peak_bytes = stored_bytes_});
}

}  // namespace ms::train
