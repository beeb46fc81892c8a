#include "train/memory/state_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace ms::train {
namespace {

// The arena keeps what is freed, for later requests, and its pages would stay in memory. They are the system's again
// until somebody writes to them.
void give_back_pages(const core::Tensor& tensor) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(tensor.bytes());
  const uintptr_t end = begin + static_cast<uintptr_t>(tensor.size_bytes());
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first < last) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace

StateMemory::StateMemory(core::Arena& arena, std::vector<core::TensorRole> roles, int64_t elements)
    : arena_(arena), roles_(std::move(roles)), elements_(elements), tensors_(roles_.size()), window_{0, elements} {
  allocate(elements);
  for (const core::Tensor& tensor : tensors_) std::ranges::fill(tensor.elements<float>(), 0.0F);
}

void StateMemory::allocate(int64_t elements) {
  for (size_t i = 0; i < roles_.size(); ++i) {
    const auto tag = roles_[i] == core::TensorRole::kMaster ? core::MemoryTag::kMaster : core::MemoryTag::kOptim;
    tensors_[i] = core::Tensor(arena_, core::DType::kFp32, {elements}, tag);
  }
}

std::span<float> StateMemory::of(size_t i, int64_t begin, int64_t end) const {
  MS_CHECK(window_.begin <= begin && end <= window_.end, "elements ", begin, " to ", end, " are not in memory");
  return tensors_[i].elements<float>().subspan(static_cast<size_t>(begin - window_.begin + window_place_),
                                               static_cast<size_t>(end - begin));
}

core::TensorView StateMemory::whole(size_t i) const { return is_whole_ ? tensors_[i].view() : core::TensorView(); }

void StateMemory::swap_to(SwapTier& tier, int64_t times) {
  MS_CHECK(tier_ == nullptr, "the state has a tier");
  tier_ = &tier;
  chunks_ = layout::StateChunks(elements_, times);
}

std::span<std::byte> StateMemory::bytes_at(size_t i, int64_t place, layout::FlatRange range) const {
  const auto elements =
      tensors_[i].elements<float>().subspan(static_cast<size_t>(place), static_cast<size_t>(range.end - range.begin));
  return std::as_writable_bytes(elements);
}

void StateMemory::start_in(int64_t chunk, int64_t place) {
  for (size_t i = 0; i < roles_.size(); ++i) {
    const std::span<std::byte> out = bytes_at(i, place, chunks_[chunk]);
    if (tier_->wait(stored(chunk, i))) {
      tier_->fetch(stored(chunk, i), out);
    } else {
      std::memset(out.data(), 0, out.size());  // the tier has failed: nobody continues from this
    }
  }
}

void StateMemory::start_out(int64_t chunk, int64_t place) {
  for (size_t i = 0; i < roles_.size(); ++i) tier_->put_again(stored(chunk, i), bytes_at(i, place, chunks_[chunk]));
}

void StateMemory::await(int64_t chunk) {
  for (size_t i = 0; i < roles_.size(); ++i) tier_->wait(stored(chunk, i));
}

void StateMemory::hold() {
  if (is_whole_) return;
  allocate(elements_);
  for (int64_t chunk = 0; chunk < chunks_.count(); ++chunk) start_in(chunk, chunks_[chunk].begin);
  for (int64_t chunk = 0; chunk < chunks_.count(); ++chunk) await(chunk);
  tier_->check();
  is_whole_ = true;
  window_ = {0, elements_};
}

void StateMemory::release(bool is_changed) {
  if (tier_ == nullptr || !is_whole_) return;
  for (int64_t chunk = 0; is_changed && chunk < chunks_.count(); ++chunk) {
    const auto known = stored_.size() > static_cast<size_t>(chunk) * roles_.size();
    if (known) {
      start_out(chunk, chunks_[chunk].begin);
      continue;
    }
    for (size_t i = 0; i < roles_.size(); ++i)
      stored_.push_back(tier_->put(bytes_at(i, chunks_[chunk].begin, chunks_[chunk])));
  }
  for (int64_t chunk = 0; chunk < chunks_.count(); ++chunk) await(chunk);
  for (core::Tensor& tensor : tensors_) {
    give_back_pages(tensor);
    tensor.reset();
  }
  is_whole_ = false;
  window_ = {};
}

void StateMemory::update(core::FunctionRef<void(layout::FlatRange)> chunk_update) {
  if (tier_ == nullptr) return chunk_update(window_);
  MS_CHECK(!is_whole_, "an update while the whole state is in memory");
  allocate(chunks_.elements_in_memory());
  for (int64_t chunk = 0; chunk < chunks_.count(); ++chunk) {
    if (chunk == 0) start_in(chunk, chunks_.place_in_memory(chunk));
    if (chunk + 1 < chunks_.count()) {
      const int64_t before = chunk + 1 - layout::StateChunks::kAtOnce;
      if (before >= 0) await(before);  // it has the memory of the next one, and is being written
      start_in(chunk + 1, chunks_.place_in_memory(chunk + 1));
    }
    await(chunk);
    window_ = chunks_[chunk];
    window_place_ = chunks_.place_in_memory(chunk);
    chunk_update(window_);
    start_out(chunk, window_place_);
  }
  window_ = {};
  window_place_ = 0;
}

void StateMemory::finish_update() {
  if (tier_ == nullptr) return;
  for (int64_t chunk = std::max<int64_t>(0, chunks_.count() - layout::StateChunks::kAtOnce); chunk < chunks_.count();
       ++chunk)
    await(chunk);
  for (core::Tensor& tensor : tensors_) tensor.reset();
}

}  // namespace ms::train
