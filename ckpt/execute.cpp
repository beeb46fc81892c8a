#include "ckpt/execute.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "ckpt/copy_box.h"
#include "ckpt/detail/panel_reader.h"
#include "ckpt/logical_hash.h"
#include "ckpt/plan.h"
#include "core/error.h"
#include "core/io/aligned_buffer.h"
#include "core/io/bulk_writer.h"
#include "core/layout/box.h"
#include "kernels/bf16.h"
#include "kernels/convert.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::DType;
using core::Error;
using core::ErrorCode;

// Throws if fp16 rounded a finite value to infinity.
template <class T>
void refuse_overflow(const T* source, const kernels::fp16* half, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = kernels::to_float(source[i]);
    if ((half[i].bits & 0x7fffu) == 0x7c00u && std::isfinite(value)) {
      throw Error(ErrorCode::kInvalidArgument, cat("value ", value, " does not fit fp16. Convert to bf16 instead."));
    }
  }
}

// Reads a box of a source shard and converts it; reuses its buffers between calls.
class BoxReader {
 public:
  // panels: null: reads each box from the source itself.
  explicit BoxReader(Source& source, detail::PanelReader* panels = nullptr) : source_(source), panels_(panels) {}

  // Stores it in `target`, a dense tensor of target_shape, at target_offset.
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, DType to, std::byte* target,
            const core::Dims& target_shape, const core::Dims& target_offset) {
    const DType from = source_.shards().dtype_of(static_cast<size_t>(shard));
    if (from == to) return read_into(shard, offset, extent, target, target_shape, target_offset);
    const int64_t count = core::num_elements(extent);
    read_.resize(static_cast<size_t>(count * core::size_of(from)));
    read_into(shard, offset, extent, read_.data(), extent, core::Dims(extent.size(), 0));
    if (is_one_run(extent, target_shape)) {
      return convert(shard, from, target + layout::flat_index(target_shape, target_offset) * core::size_of(to), to,
                     count);
    }
    converted_.resize(static_cast<size_t>(count * core::size_of(to)));
    convert(shard, from, converted_.data(), to, count);
    copy_box(converted_.data(), extent, core::Dims(extent.size(), 0), target, target_shape, target_offset, extent,
             core::size_of(to));
  }

 private:
  void read_into(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out,
                 const core::Dims& out_shape, const core::Dims& out_offset) {
    if (panels_ != nullptr) return panels_->read_into(shard, offset, extent, out, out_shape, out_offset);
    source_.read_into(shard, offset, extent, out, out_shape, out_offset);
  }
  void convert(int32_t shard, DType from, std::byte* target, DType to, int64_t count) {
    try {
      convert_elements(read_.data(), from, target, to, count);
    } catch (const Error& e) {
      throw e.within(source_.shards().key(source_.shards().tensor_of(static_cast<size_t>(shard))));
    }
  }
  Source& source_;
  detail::PanelReader* panels_;
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
void fill_chunk(const Job& job, const core::ShardedTensor& target, BoxReader& reader, std::byte* chunk) {
  const int64_t item = core::size_of(target.dtype);
  layout::for_each_box_of_range(target.local_shape, job.first, job.count, [&](const layout::Box& box, int64_t first) {
    std::byte* at = chunk + (first - job.first) * item;
    for (const CopyRegion& copy : job.work->copies) {
      const auto common = layout::intersect(box.offset, box.extent, copy.target_offset, copy.extent);
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

// How many workers run, and how much memory panels get (share_memory).
struct Shares {
  int workers = 1;
  int64_t panel_bytes = 0;  // 0: the source has its own cache
};

// A bounded queue between the planner and the workers; the first error stops all of them.
class Pipeline {
 public:
  Pipeline(Source& source, Sink& sink, const ShardTable& targets, const ExecuteOptions& options, const Shares& shares)
      : source_(source), sink_(sink), targets_(targets), options_(options) {
    if (shares.panel_bytes > 0) {
      panels_ = std::make_unique<detail::PanelReader>(source, shares.panel_bytes, shares.workers);
    }
    for (size_t i = 0; i < targets.size(); ++i) {
      if (sink.wants(static_cast<int32_t>(i))) total_ += targets.size_bytes(i);
    }
    if (shares.workers == 1) {
      inline_worker_ = std::make_unique<Worker>(source, panels_.get());
    } else {
      for (int i = 0; i < shares.workers; ++i) workers_.emplace_back([this] { run(); });
    }
  }
  ~Pipeline() { join(); }

  void submit(const Job& job) {
    if (inline_worker_ != nullptr) return perform(job, *inline_worker_);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.size() < 2 * workers_.size() || error_ != nullptr; });
    if (error_ != nullptr) std::rethrow_exception(error_);
    queue_.push_back(job);
    changed_.notify_all();
  }

  // Returns the bytes of targets that were kept from an earlier attempt.
  int64_t finish() {
    join();
    if (error_ != nullptr) std::rethrow_exception(error_);
    return kept_;
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

  // A worker's memory: the chunk that it assembles, and the buffers of a conversion.
  struct Worker {
    Worker(Source& source, detail::PanelReader* panels)
        : reader(source, panels), chunk(static_cast<size_t>(kChunkBytes + core::kDirectAlignment)) {}
    BoxReader reader;
    core::AlignedBuffer chunk;
  };

  void perform(const Job& job, Worker& worker) {
    if (options_.stopped && options_.stopped()) throw Error(ErrorCode::kIo, "interrupted");
    const core::ShardedTensor target = targets_[static_cast<size_t>(job.work->target)];
    const int64_t size = job.count * core::size_of(target.dtype);
    MS_CHECK(size <= kChunkBytes, target.key, ": a sink that wants ", size, " bytes at a time");
    std::byte* chunk = worker.chunk.data() + sink_.page_offset(job.work->target, job.first);
    const bool kept = sink_.keep(job.work->target, job.first, job.count, chunk);
    if (!kept) {
      fill_chunk(job, target, worker.reader, chunk);
      sink_.write(job.work->target, job.first, job.count, chunk);
    }
    std::lock_guard lock(progress_mutex_);
    done_ += size;
    kept_ += kept ? size : 0;
    if (options_.progress) options_.progress(done_, total_);
  }

  void run() {
    std::unique_ptr<Worker> worker;
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
        if (worker == nullptr) worker = std::make_unique<Worker>(source_, panels_.get());
        perform(job, *worker);
      } catch (...) {
        {
          std::lock_guard lock(mutex_);
          if (error_ == nullptr) error_ = std::current_exception();
        }
        changed_.notify_all();
        sink_.stop();
        return;
      }
    }
  }

  Source& source_;
  Sink& sink_;
  const ShardTable& targets_;
  const ExecuteOptions& options_;
  std::unique_ptr<detail::PanelReader> panels_;
  int64_t total_ = 0, done_ = 0, kept_ = 0;
  std::unique_ptr<Worker> inline_worker_;
  std::vector<std::thread> workers_;
  std::mutex mutex_, progress_mutex_;
  std::condition_variable changed_;
  std::deque<Job> queue_;
  bool closed_ = false;
  std::exception_ptr error_;
};

// The chunks of targets of one tensor, ordered by position in the tensor: chunks that need the same source bytes are
// close together, so that cached source data is used by all of them.
std::vector<Job> jobs_of_tensor(std::span<const int32_t> of_tensor, const ShardTable& targets, Planner& planner,
                                const Sink& sink, int64_t& copies) {
  std::vector<std::pair<int64_t, Job>> placed;  // by flat index of the first element in the tensor
  for (const int32_t index : of_tensor) {
    auto work = std::make_shared<TargetWork>();
    work->target = index;
    planner.copies_of(index, [&](const CopyRegion& copy) {
      work->copies.push_back(copy);
      ++copies;
    });
    const core::ShardedTensor target = targets[static_cast<size_t>(index)];
    const int64_t total = core::num_elements(target.local_shape), step = sink.chunk_elements(target);
    for (int64_t first = 0; first < total; first += step) {
      core::Dims place(target.global_offset);
      int64_t rest = first;
      for (size_t axis = place.size(); axis-- > 0; rest /= target.local_shape[axis]) {
        place[axis] += rest % target.local_shape[axis];
      }
      placed.push_back({layout::flat_index(target.global_shape, place), {work, first, std::min(step, total - first)}});
    }
  }
  std::stable_sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // Restore within each file the order that Sink::write requires.
  std::map<int32_t, std::deque<Job>> of_file;
  for (const auto& [place, job] : placed) of_file[sink.file_of(job.work->target)].push_back(job);
  for (auto& [file, jobs] : of_file) {
    std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) {
      return std::pair(a.work->target, a.first) < std::pair(b.work->target, b.first);
    });
  }
  std::vector<Job> jobs;
  for (const auto& [place, job] : placed) {
    std::deque<Job>& of_this = of_file.at(sink.file_of(job.work->target));
    jobs.push_back(std::move(of_this.front()));
    of_this.pop_front();
  }
  return jobs;
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// Divides what mem_bytes leaves after the plan between workers, source and panels.
Shares share_memory(Source& source, const Sink& sink, const ShardTable& targets, const ExecuteOptions& options) {
  constexpr int64_t kSinkBytes = int64_t{20} << 20;       // HDF5's and the writers' memory
  constexpr int64_t kPageOffsetBytes = int64_t{2} << 20;  // up to one huge page more per chunk buffer, for alignment
  constexpr int64_t kReadIntoBytes = int64_t{2} << 20;    // Source::read_into()'s buffer
  bool converts = false;
  std::vector<std::optional<DType>> from(targets.num_tensors());
  for (size_t t = 0; t < from.size(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    const auto found = source.shards().find(targets.key(tensor), targets.role(tensor));
    if (found) from[t] = source.shards().dtype(*found);
  }
  for (size_t i = 0; i < targets.size() && !converts; ++i) {
    const auto& dtype = from[static_cast<size_t>(targets.tensor_of(i))];
    converts = dtype && *dtype != targets.dtype_of(i);
  }
  // A worker holds the chunk that it assembles; a conversion also needs the input, up to twice as large, and the
  // result.
  const int64_t each = (converts ? 5 : 1) * kChunkBytes + kPageOffsetBytes + kReadIntoBytes + source.scratch_bytes() +
                       sink.scratch_bytes();
  const int64_t pool = std::max(options.mem_bytes - resident_bytes() - kSinkBytes, each + 2 * kChunkBytes);
  // More workers than cores, because most of them wait for the disk.
  const auto carried = static_cast<int>((pool - kChunkBytes) / (each + kChunkBytes));
  const int workers = std::clamp(options.threads == 1 ? 1 : 2 * options.threads + 2, 1, std::max(1, carried));
  // Targets that are split by columns 8 ways want 64 MiB of the source at once.
  constexpr int64_t kMaxPanelBytes = int64_t{64} << 20;
  const int64_t rest = std::min(pool - workers * each, int64_t{64} * kChunkBytes);
  return {workers, source.expect_stream(rest, workers) ? 0 : std::min(rest, kMaxPanelBytes)};
}

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
  const auto start = std::chrono::steady_clock::now();
  ExecuteReport report;
  sink.begin(info, targets);
  for (size_t i = 0; i < targets.size(); ++i) report.bytes += targets.size_bytes(i);
  sink.agree([&] {
    Planner planner(source.shards(), targets);
    const Shares shares = share_memory(source, sink, targets, options);
    source.begin_one_pass();
    Pipeline pipeline(source, sink, targets, options, shares);
    std::map<int32_t, size_t> wave_of_file;  // number of the batch in which a file is written
    std::vector<int32_t> order;
    for (size_t i = 0; i < targets.size(); ++i) {
      const auto target = static_cast<int32_t>(i);
      if (!sink.wants(target)) continue;
      wave_of_file.try_emplace(sink.file_of(target), wave_of_file.size() / sink.files_at_once());
      order.push_back(target);
    }
    const auto place = [&](int32_t target) {
      return std::pair(wave_of_file.at(sink.file_of(target)), write_order(targets, target));
    };
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return place(a) < place(b); });
    const auto group = [&](int32_t target) {
      return std::pair(place(target).first, targets.tensor_of(static_cast<size_t>(target)));
    };
    for (size_t i = 0; i < order.size();) {
      size_t end = i + 1;
      while (end < order.size() && group(order[end]) == group(order[i])) ++end;
      for (const Job& job : jobs_of_tensor({order.data() + i, end - i}, targets, planner, sink, report.copies)) {
        pipeline.submit(job);
      }
      i = end;
    }
    report.kept_bytes = pipeline.finish();
    // This process did not read the source data of chunks that an earlier attempt wrote: verify its checksums now.
    source.end_one_pass(report.kept_bytes > 0);
  });
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
      layout::for_each_box_of_range(copy.extent, first, std::min(kStep, total - first),
                                    [&](const layout::Box& box, int64_t) {
                                      core::Dims from(box.offset), to(box.offset);
                                      for (size_t axis = 0; axis < from.size(); ++axis) {
                                        from[axis] += copy.source_offset[axis];
                                        to[axis] += copy.target_offset[axis];
                                      }
                                      reader.read(copy.source_shard, from, box.extent, target.meta.dtype, target.data,
                                                  target.meta.local_shape, to);
                                    });
    }
  });
}

}  // namespace ms::ckpt
