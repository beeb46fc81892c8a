#include "ckpt/detail/paired_reading.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "ckpt/copy_box.h"
#include "ckpt/execute.h"
#include "ckpt/logical_hash.h"
#include "core/error.h"
#include "kernels/convert.h"

namespace ms::ckpt::detail {
namespace {

using core::cat;
using core::DType;
using core::Error;
using core::ErrorCode;

bool is_float(DType dtype) { return dtype == DType::kFp32 || dtype == DType::kBf16 || dtype == DType::kFp16; }

}  // namespace

bool is_convertible(DType from, DType to) { return from == to || (is_float(from) && is_float(to)); }

void round_elements(const std::byte* source, DType from, std::byte* target, DType to, int64_t count) {
  if (from == DType::kFp32 && to == DType::kFp16) {
    kernels::convert(reinterpret_cast<const float*>(source), reinterpret_cast<kernels::fp16*>(target), count);
  } else if (from == DType::kBf16 && to == DType::kFp16) {
    kernels::convert(reinterpret_cast<const kernels::bf16*>(source), reinterpret_cast<kernels::fp16*>(target), count);
  } else {
    convert_elements(source, from, target, to, count);
  }
}

PairedReading::PairedReading(Source& a, Source& b, std::span<const TensorPair> pairs,
                             const PairedReadingOptions& options)
    : a_(a), b_(b), pairs_(pairs.begin(), pairs.end()), options_(options) {
  const ShardTable& table = a.shards();
  const ShardsOfTensors shards(table);
  for (size_t p = 0; p < pairs_.size(); ++p) {
    const int32_t tensor = pairs_[p].a;
    const std::string partner(b.shards().key(pairs_[p].b));  // the plan matches by name and role
    for (size_t i = 0; i < shards.count(tensor); ++i) {
      const int32_t shard = shards.member(tensor, i);
      const auto index = static_cast<size_t>(shard);
      if (table.replica_id(index) != 0 && !options.replicas) continue;
      const core::ShardedTensor whole = table[index];
      MS_CHECK(is_convertible(b.shards().dtype(pairs_[p].b), whole.dtype), whole.key);
      const int64_t total = table.elements(index), step = kChunkBytes / core::size_of(whole.dtype);
      for (int64_t begin = 0; begin < total; begin += step) {
        layout::for_each_box_of_range(whole.local_shape, begin, std::min(step, total - begin),
                                      [&](const layout::Box& box, int64_t first) {
                                        core::ShardedTensor piece = whole;
                                        for (size_t axis = 0; axis < box.offset.size(); ++axis) {
                                          piece.global_offset[axis] += box.offset[axis];
                                        }
                                        piece.local_shape = box.extent;
                                        piece.key = partner;
                                        piece.role = b.shards().role(pairs_[p].b);
                                        pieces_.push_back(piece);
                                        places_.push_back({p, shard, first, box});
                                        total_ += bytes_of(piece);
                                      });
      }
    }
  }
}

void PairedReading::read_b(const std::vector<CopyRegion>& copies, const core::ShardedTensor& place, DType dtype,
                           Buffers& buffers) {
  const int64_t item = core::size_of(dtype);
  buffers.b.resize(static_cast<size_t>(core::num_elements(place.local_shape) * item));
  for (const CopyRegion& copy : copies) {
    const DType stored = b_.shards().dtype_of(static_cast<size_t>(copy.source_shard));
    if (stored == dtype) {
      b_.read_into(copy.source_shard, copy.source_offset, copy.extent, buffers.b.data(), place.local_shape,
                   copy.target_offset);
      continue;
    }
    // A foreign tensor may have parts of several types; the widest type represents all of them.
    const int64_t count = core::num_elements(copy.extent);
    buffers.part.resize(static_cast<size_t>(count * core::size_of(stored)));
    b_.read(copy.source_shard, copy.source_offset, copy.extent, buffers.part.data());
    std::vector<std::byte> rounded(static_cast<size_t>(count * item));
    round_elements(buffers.part.data(), stored, rounded.data(), dtype, count);
    copy_box(rounded.data(), copy.extent, core::Dims(copy.extent.size(), 0), buffers.b.data(), place.local_shape,
             copy.target_offset, copy.extent, item);
  }
}

void PairedReading::run(const std::function<void(const PairedPiece&)>& use) {
  next_ = 0;
  done_ = 0;
  const int threads = std::clamp(options_.threads, 1, static_cast<int>(std::max<size_t>(1, places_.size())));
  b_.expect_stream((2 * threads + 2) * kChunkBytes, threads);
  Planner planner(b_.shards(), pieces_);
  std::exception_ptr error;
  const auto work = [&] {
    Buffers buffers;
    std::vector<CopyRegion> copies;
    try {
      for (;;) {
        size_t number = 0;
        {
          std::lock_guard lock(mutex_);
          if (next_ >= places_.size()) return;
          number = next_++;
          copies.clear();
          planner.copies_of(static_cast<int32_t>(number), [&](const CopyRegion& copy) { copies.push_back(copy); });
        }
        if (options_.stopped && options_.stopped()) throw Error(ErrorCode::kIo, "interrupted");
        const Place& at = places_[number];
        PairedPiece piece{at.pair, number, at.shard, at.first, pieces_[number], {}, {}, {}};
        const DType from = b_.shards().dtype(pairs_[at.pair].b), to = piece.place.dtype;
        const int64_t count = core::num_elements(piece.place.local_shape);
        buffers.a.resize(static_cast<size_t>(count * core::size_of(to)));
        a_.read(at.shard, at.box.offset, at.box.extent, buffers.a.data());
        read_b(copies, piece.place, from, buffers);
        piece.a = buffers.a;
        piece.b = piece.b_as_a = buffers.b;
        if (from != to) {
          buffers.converted.resize(buffers.a.size());
          round_elements(buffers.b.data(), from, buffers.converted.data(), to, count);
          piece.b_as_a = buffers.converted;
        }
        use(piece);
        std::lock_guard lock(mutex_);
        done_ += static_cast<int64_t>(buffers.a.size());
        if (options_.progress) options_.progress(done_, total_);
      }
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (error == nullptr) error = std::current_exception();
      next_ = places_.size();
    }
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < threads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace ms::ckpt::detail
