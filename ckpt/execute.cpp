#include "ckpt/execute.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ckpt/box.h"
#include "ckpt/plan.h"
#include "core/error.h"
#include "kernels/bf16.h"
#include "kernels/convert.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::DType;
using core::Error;
using core::ErrorCode;

// An infinity that was none before.
template <class T>
void refuse_overflow(const T* source, const kernels::fp16* half, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = kernels::to_float(source[i]);
    if ((half[i].bits & 0x7fffu) == 0x7c00u && std::isfinite(value)) {
      throw Error(ErrorCode::kInvalidArgument, cat("value ", value, " does not fit fp16. Convert to bf16 instead."));
    }
  }
}

// Reads a box of a source shard and converts it; the buffers are kept from call to call.
class BoxReader {
 public:
  explicit BoxReader(Source& source) : source_(source) {}

  // Into `target`, a dense tensor of target_shape, at target_offset.
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, DType to, std::byte* target,
            const core::Dims& target_shape, const core::Dims& target_offset) {
    const DType from = source_.shards().dtype_of(static_cast<size_t>(shard));
    const int64_t count = core::num_elements(extent);
    bool dense = true;  // does the box lie in the target as one run?
    for (size_t axis = 1; axis < extent.size(); ++axis) {
      dense = dense && (extent[axis] == target_shape[axis] ||
                        core::num_elements({extent.begin(), extent.begin() + static_cast<int64_t>(axis)}) == 1);
    }
    std::byte* place = target + flat_index(target_shape, target_offset) * core::size_of(to);
    if (from == to && dense) return source_.read(shard, offset, extent, place);
    read_.resize(static_cast<size_t>(count * core::size_of(from)));
    source_.read(shard, offset, extent, read_.data());
    if (dense) return convert(shard, from, place, to, count);
    const std::vector<std::byte>* dense_box = &read_;
    if (from != to) {
      converted_.resize(static_cast<size_t>(count * core::size_of(to)));
      convert(shard, from, converted_.data(), to, count);
      dense_box = &converted_;
    }
    copy_box(dense_box->data(), extent, core::Dims(extent.size(), 0), target, target_shape, target_offset, extent,
             core::size_of(to));
  }

 private:
  void convert(int32_t shard, DType from, std::byte* target, DType to, int64_t count) {
    try {
      convert_elements(read_.data(), from, target, to, count);
    } catch (const Error& e) {
      throw e.within(source_.shards().key(source_.shards().tensor_of(static_cast<size_t>(shard))));
    }
  }
  Source& source_;
  std::vector<std::byte> read_, converted_;
};

// One target shard and the copies that fill it.
struct TargetWork {
  int32_t target = 0;
  std::vector<CopyRegion> copies;
};

struct Job {
  std::shared_ptr<const TargetWork> work;
  int64_t first = 0, count = 0;  // flat elements of the target
};

// Assembles one chunk of a target.
void fill_chunk(const Job& job, const core::ShardedTensor& target, BoxReader& reader, std::vector<std::byte>& chunk) {
  const int64_t item = core::size_of(target.dtype);
  chunk.resize(static_cast<size_t>(job.count * item));
  for_each_box_of_range(target.local_shape, job.first, job.count, [&](const Box& box, int64_t first) {
    std::byte* at = chunk.data() + (first - job.first) * item;
    for (const CopyRegion& copy : job.work->copies) {
      const auto common = intersect(box.offset, box.extent, copy.target_offset, copy.extent);
      if (!common) continue;
      core::Dims from(common->offset), to(common->offset);
      for (size_t axis = 0; axis < from.size(); ++axis) {
        from[axis] += copy.source_offset[axis] - copy.target_offset[axis];
        to[axis] -= box.offset[axis];
      }
      reader.read(copy.source_shard, from, common->extent, target.dtype, at, box.extent, to);
    }
  });
}

// A bounded queue between the planner and the workers; the first error stops both.
class Pipeline {
 public:
  Pipeline(Source& source, Sink& sink, const ShardTable& targets, const ExecuteOptions& options, int threads)
      : source_(source), sink_(sink), targets_(targets), options_(options) {
    for (size_t i = 0; i < targets.size(); ++i) total_ += targets.size_bytes(i);
    if (threads == 1) {
      inline_reader_ = std::make_unique<BoxReader>(source);
    } else {
      for (int i = 0; i < threads; ++i) workers_.emplace_back([this] { run(); });
    }
  }
  ~Pipeline() { join(); }

  int64_t total() const { return total_; }

  void submit(const Job& job) {
    if (inline_reader_ != nullptr) return perform(job, *inline_reader_, inline_chunk_);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.size() < 2 * workers_.size() || error_ != nullptr; });
    if (error_ != nullptr) std::rethrow_exception(error_);
    queue_.push_back(job);
    changed_.notify_all();
  }

  void finish() {
    join();
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  void join() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  void perform(const Job& job, BoxReader& reader, std::vector<std::byte>& chunk) {
    if (options_.stopped && options_.stopped()) throw Error(ErrorCode::kIo, "interrupted");
    const core::ShardedTensor target = targets_[static_cast<size_t>(job.work->target)];
    fill_chunk(job, target, reader, chunk);
    sink_.write(job.work->target, job.first, job.count, chunk.data());
    std::lock_guard lock(progress_mutex_);
    done_ += static_cast<int64_t>(chunk.size());
    if (options_.progress) options_.progress(done_, total_);
  }

  void run() {
    BoxReader reader(source_);
    std::vector<std::byte> chunk;
    while (true) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !queue_.empty() || closed_ || error_ != nullptr; });
        if (error_ != nullptr || queue_.empty()) return;
        job = std::move(queue_.front());
        queue_.pop_front();
      }
      changed_.notify_all();
      try {
        perform(job, reader, chunk);
      } catch (...) {
        std::lock_guard lock(mutex_);
        if (error_ == nullptr) error_ = std::current_exception();
        changed_.notify_all();
        return;
      }
    }
  }

  Source& source_;
  Sink& sink_;
  const ShardTable& targets_;
  const ExecuteOptions& options_;
  int64_t total_ = 0, done_ = 0;
  std::unique_ptr<BoxReader> inline_reader_;
  std::vector<std::byte> inline_chunk_;
  std::vector<std::thread> workers_;
  std::mutex mutex_, progress_mutex_;
  std::condition_variable changed_;
  std::deque<Job> queue_;
  bool closed_ = false;
  std::exception_ptr error_;
};

}  // namespace

void convert_elements(const std::byte* source, DType from, std::byte* target, DType to, int64_t count) {
  if (from == to) {
    std::memcpy(target, source, static_cast<size_t>(count * core::size_of(from)));
    return;
  }
  const auto pair = [&](auto from_element, auto to_element) {
    kernels::convert(reinterpret_cast<const decltype(from_element)*>(source),
                     reinterpret_cast<decltype(to_element)*>(target), count);
  };
  using kernels::bf16, kernels::fp16;
  if (from == DType::kFp32 && to == DType::kBf16) return pair(float(), bf16());
  if (from == DType::kBf16 && to == DType::kFp32) return pair(bf16(), float());
  if (from == DType::kFp16 && to == DType::kFp32) return pair(fp16(), float());
  if (from == DType::kFp16 && to == DType::kBf16) return pair(fp16(), bf16());
  if (from == DType::kFp32 && to == DType::kFp16) {
    pair(float(), fp16());
    return refuse_overflow(reinterpret_cast<const float*>(source), reinterpret_cast<const fp16*>(target), count);
  }
  if (from == DType::kBf16 && to == DType::kFp16) {
    pair(bf16(), fp16());
    return refuse_overflow(reinterpret_cast<const bf16*>(source), reinterpret_cast<const fp16*>(target), count);
  }
  throw Error(ErrorCode::kUnsupported,
              cat("no conversion from ", core::dtype_name(from), " to ", core::dtype_name(to)));
}

ExecuteReport execute(Source& source, Sink& sink, const CheckpointInfo& info, const ShardTable& targets,
                      const ExecuteOptions& options) {
  if (options.mem_bytes < kMinMemBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("--mem ", options.mem_bytes, ": at least ", kMinMemBytes, " bytes (64 MiB) are needed"));
  }
  // A worker holds a chunk, what it reads for it (twice the size if it is to be halved), its conversion, and the
  // source's scratch.
  constexpr int64_t kPerWorker = int64_t{40} << 20;
  const auto carried = static_cast<int>((options.mem_bytes - (int64_t{16} << 20)) / kPerWorker);
  const int threads = std::clamp(options.threads, 1, std::max(1, carried));
  const auto start = std::chrono::steady_clock::now();
  ExecuteReport report;
  sink.begin(info, targets);
  {
    Pipeline pipeline(source, sink, targets, options, threads);
    report.bytes = pipeline.total();
    auto work = std::make_shared<TargetWork>();
    const auto submit = [&] {
      if (work->copies.empty()) return;
      const auto target = static_cast<size_t>(work->target);
      const int64_t total = targets.elements(target);
      const int64_t step = sink.chunk_elements(targets[target]);
      for (int64_t first = 0; first < total; first += step) {
        pipeline.submit({work, first, std::min(step, total - first)});
      }
    };
    plan_copies(source.shards(), targets, [&](const CopyRegion& copy) {
      if (copy.target_shard != work->target) {
        submit();
        work = std::make_shared<TargetWork>();
        work->target = copy.target_shard;
      }
      work->copies.push_back(copy);
      ++report.copies;
    });
    submit();
    pipeline.finish();
  }
  report.path = sink.commit();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

void load_shards(Source& source, std::span<const ShardTarget> targets, const std::function<bool()>& stopped) {
  std::vector<core::ShardedTensor> metas;
  for (const ShardTarget& target : targets) metas.push_back(target.meta);
  BoxReader reader(source);
  plan_copies(source.shards(), metas, [&](const CopyRegion& copy) {
    const ShardTarget& target = targets[static_cast<size_t>(copy.target_shard)];
    const int64_t total = core::num_elements(copy.extent);
    constexpr int64_t kStep = int64_t{2} << 20;  // elements: at most 8 MiB of scratch
    for (int64_t first = 0; first < total; first += kStep) {
      if (stopped && stopped()) throw Error(ErrorCode::kIo, "interrupted");
      for_each_box_of_range(copy.extent, first, std::min(kStep, total - first), [&](const Box& box, int64_t) {
        core::Dims from(box.offset), to(box.offset);
        for (size_t axis = 0; axis < from.size(); ++axis) {
          from[axis] += copy.source_offset[axis];
          to[axis] += copy.target_offset[axis];
        }
        reader.read(copy.source_shard, from, box.extent, target.meta.dtype, target.data, target.meta.local_shape, to);
      });
    }
  });
}

}  // namespace ms::ckpt
