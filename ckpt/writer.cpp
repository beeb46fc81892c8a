#include "ckpt/writer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "ckpt/commit.h"
#include "ckpt/detail/assemble.h"
#include "ckpt/detail/rank_file.h"
#include "core/comm/agree.h"
#include "core/error.h"
#include "core/io/atomic_directory.h"
#include "core/io/file.h"
#include "core/io/lock_file.h"
#include "core/log.h"
#include "core/trace/span.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using core::trace::Category;
using core::trace::Span;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

int64_t bytes_of(const core::ShardedTensor& shard) {
  return core::num_elements(shard.local_shape) * core::size_of(shard.dtype);
}

bool is_written(const ShardData& shard) { return shard.meta.replica_id == 0 && bytes_of(shard.meta) > 0; }

int64_t staged_bytes(std::span<const ShardData> shards) {
  int64_t total = 0;
  for (const ShardData& shard : shards) {
    if (is_written(shard)) total += (bytes_of(shard.meta) + 63) / 64 * 64;
  }
  return total;
}

// What a rank tells the coordinator: first byte 'k' and an encoded record, or 'e', the code's digit and a text.
std::string error_report(const Error& e) {
  return cat('e', static_cast<char>('0' + static_cast<int>(e.code())), e.what());
}

Error parse_error(const std::string& report) {
  return Error(static_cast<ErrorCode>(report.at(1) - '0'), report.substr(2));
}

// Runs body, and turns whatever it throws into an error report.
std::string report_of(const std::function<std::string()>& body) {
  try {
    return body();
  } catch (const Error& e) {
    return error_report(e);
  } catch (const std::bad_alloc&) {
    return error_report(Error(ErrorCode::kOutOfMemory, "no memory for writing a checkpoint"));
  } catch (const std::exception& e) {
    return error_report(Error(ErrorCode::kInternal, e.what()));
  }
}

}  // namespace

struct Saver::Impl {
  Impl(core::Communicator& communicator, Options opts) : comm(communicator), options(std::move(opts)) {
    if (options.arena == nullptr) options.arena = &own_arena;
    open_root();
    if (options.async) thread = std::thread([this] { run_tasks(); });
  }
  ~Impl() {
    {
      std::lock_guard lock(mutex);
      closing = true;
    }
    changed.notify_all();
    if (thread.joinable()) thread.join();
  }

  bool coordinator() const { return comm.rank() == 0; }
  bool alone() const { return comm.size() == 1; }

  void open_root();
  void run_tasks();
  void start_task(std::function<std::string()> task);
  std::optional<std::string> task_result(double wait_s);
  std::string write_local();
  std::string commit(const std::vector<std::string>& reports);
  void copy_snapshot(std::span<const ShardData> shards);
  void advance(bool blocking);
  void end(const std::string& verdict);

  core::Communicator& comm;
  Options options;
  core::Arena own_arena;
  std::unique_ptr<core::LockFile> lock_file;  // coordinator only
  std::string suffix;                         // of temporary directories, the same on all ranks
  core::Buffer staging;
  core::WritePath write_path = core::WritePath::kBuffered;

  // The writer thread runs one task at a time and leaves its report.
  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  std::function<std::string()> task;
  std::optional<std::string> result;
  bool closing = false;

  // The save under way, as the main thread sees it. All ranks go through these states at the same calls.
  enum class State { kIdle, kWriting, kCommitting };
  State state = State::kIdle;
  int64_t saves = 0;
  CheckpointInfo info;
  std::filesystem::path temporary;
  std::vector<core::ShardedTensor> boxes;
  std::vector<const std::byte*> data;
  std::string local_report;          // when this rank's writer is done
  std::vector<int64_t> votes;        // see advance
  std::optional<core::Work> vote;    // in flight
  std::vector<std::string> reports;  // coordinator: of every rank
  std::vector<core::Work> messages;  // reports on their way

  int64_t last_committed = -1;
  std::filesystem::path last_path;
  double last_blocking_s = 0, last_wait_s = 0;
  int64_t last_bytes = 0;
};

// Collective: the coordinator makes and locks the root and chooses the name of temporary directories.
void Saver::Impl::open_root() {
  std::string answer;
  if (coordinator()) {
    answer = report_of([&] {
      std::error_code error;
      std::filesystem::create_directories(options.root, error);
      if (error) throw Error(ErrorCode::kIo, cat("cannot make ", options.root.string(), ": ", error.message()));
      lock_file = std::make_unique<core::LockFile>((options.root / kLockName).string());
      if (const int removed = remove_abandoned(options.root); removed > 0) {
        core::log_info("ckpt.recovery",
                       cat("removed ", removed, " unfinished checkpoints of dead writers in ", options.root.string()));
      }
      const core::WritePathChoice choice = core::choose_write_path(options.root.string());
      core::log_info("ckpt.write", cat("writing by ", choice.why));
      return cat('k', static_cast<int>(choice.path), core::temporary_suffix());
    });
  }
  if (!alone()) answer = comm.bcast_string(answer, 0);
  if (answer[0] == 'e') throw core::AgreedError(parse_error(answer));
  write_path = static_cast<core::WritePath>(answer[1] - '0');
  suffix = answer.substr(2);
}

void Saver::Impl::run_tasks() {
  while (true) {
    std::function<std::string()> next;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return closing || task; });
      if (!task) return;
      next = std::exchange(task, nullptr);
    }
    std::string report = report_of(next);
    {
      std::lock_guard lock(mutex);
      result = std::move(report);
    }
    changed.notify_all();
  }
}

void Saver::Impl::start_task(std::function<std::string()> body) {
  if (!options.async) {
    result = report_of(body);
    return;
  }
  {
    std::lock_guard lock(mutex);
    task = std::move(body);
  }
  changed.notify_all();
}

// The report of the last task if it is there, or comes within wait_s; taken once.
std::optional<std::string> Saver::Impl::task_result(double wait_s) {
  std::unique_lock lock(mutex);
  if (wait_s > 0) changed.wait_for(lock, std::chrono::duration<double>(wait_s), [&] { return result.has_value(); });
  return std::exchange(result, std::nullopt);
}

// Writer thread: this rank's file.
std::string Saver::Impl::write_local() {
  core::make_directory(temporary);
  if (boxes.empty()) return cat('k', encode_record({}));
  int64_t total = 0;
  for (const auto& box : boxes) total += bytes_of(box);
  if (const int64_t room = core::available_bytes(temporary.string()); room < total) {
    throw Error(ErrorCode::kIo, cat("this rank's part of the checkpoint takes ", total, " bytes, but only ", room,
                                    " are free in ", options.root.string()));
  }
  Span span(options.recorder, Category::kUserAnnotation, "ckpt.write", -1, total);
  RankFile file(temporary.string(), comm.rank(), boxes, {write_path, 0});
  for (size_t i = 0; i < boxes.size(); ++i) {
    const int64_t item = core::size_of(boxes[i].dtype);
    const int64_t elements = core::num_elements(boxes[i].local_shape), step = kChunkBytes / item;
    for (int64_t first = 0; first < elements; first += step) {
      file.write_later(static_cast<int32_t>(i), first, std::min(step, elements - first), data[i] + first * item);
    }
  }
  return cat('k', encode_record(file.finish(options.recorder)));
}

// Coordinator, writer thread: makes the generation of what all ranks reported, or removes it.
std::string Saver::Impl::commit(const std::vector<std::string>& all) {
  Span span(options.recorder, Category::kUserAnnotation, "ckpt.commit");
  core::AtomicDirectory directory(temporary);  // removed again if anything below throws
  std::optional<Error> error;
  int failed = 0;
  std::vector<RankFileRecord> records;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] == 'e') {
      if (!error) error = parse_error(all[rank]).within(cat("save iteration ", info.iteration, ": rank ", rank));
      ++failed;
    } else if (!error) {
      records.push_back(decode_record(all[rank].substr(1)));
    }
  }
  if (error && failed > 1) throw Error(error->code(), cat(error->what(), " (and ", failed - 1, " more ranks)"));
  if (error) throw *error;
  Manifest manifest;
  manifest.producer = options.producer;
  manifest.info = info;
  assemble_tensors(manifest, records);
  return cat('k', commit_generation(options.root, directory, std::move(manifest)).string());
}

// Fills `boxes` and `data`: copies in async mode, the caller's memory otherwise.
void Saver::Impl::copy_snapshot(std::span<const ShardData> shards) {
  boxes.clear();
  data.clear();
  last_bytes = 0;
  struct Piece {
    std::byte* to;
    const std::byte* from;
    int64_t size;
  };
  std::vector<Piece> pieces;
  std::byte* place = staging.data();
  for (const ShardData& shard : shards) {
    if (!is_written(shard)) continue;
    const int64_t size = bytes_of(shard.meta);
    boxes.push_back(shard.meta);
    data.push_back(options.async ? place : shard.data);
    last_bytes += size;
    if (!options.async) continue;
    constexpr int64_t kPiece = int64_t{1} << 20;
    for (int64_t at = 0; at < size; at += kPiece) {
      pieces.push_back({place + at, shard.data + at, std::min(kPiece, size - at)});
    }
    place += (size + 63) / 64 * 64;
  }
  const auto copy = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      std::memcpy(piece.to, piece.from, static_cast<size_t>(piece.size));
    }
  };
  const auto count = static_cast<int64_t>(pieces.size());
  if (options.pool != nullptr) {
    options.pool->parallel_for(count, 1, copy);
  } else {
    copy(0, count);
  }
}

// Moves the agreement forward; called by all ranks at the same points, so that they see the same votes and pass from
// state to state, and throw, at the same call. A vote is one allreduce kept in flight between two calls:
//   kWriting:    slot r is the length of rank r's report, 0 while its writer is busy. When none is 0, the reports go to
//                the coordinator, whose writer thread commits.
//   kCommitting: slot 0 is 0 while it does, else the length of the verdict, which is then broadcast.
void Saver::Impl::advance(bool blocking) {
  while (state != State::kIdle) {
    if (alone()) {
      auto report = task_result(blocking ? 3600 : 0);
      if (report) {
        end(*report);
      } else if (!blocking) {
        return;
      }
      continue;
    }
    if (!vote) {
      const double wait_s = blocking ? 0.5 : 0;
      if (state == State::kWriting) {
        if (local_report.empty()) {
          if (auto report = task_result(wait_s)) local_report = std::move(*report);
        }
        std::fill(votes.begin(), votes.end(), 0);
        votes[static_cast<size_t>(comm.rank())] = static_cast<int64_t>(local_report.size());
      } else {
        if (coordinator()) {
          bool arrived = true;
          for (core::Work& message : messages) {
            if (blocking) message.wait();
            arrived = message.test() && arrived;
          }
          if (arrived && !reports.empty()) {
            start_task([this, all = std::move(reports)] { return commit(all); });
            reports.clear();
          }
          if (local_report.empty()) {
            if (auto report = task_result(wait_s)) local_report = std::move(*report);
          }
        }
        std::fill(votes.begin(), votes.end(), 0);
        if (coordinator()) votes[0] = static_cast<int64_t>(local_report.size());
      }
      vote = comm.iallreduce({votes.data(), core::DType::kInt64, {static_cast<int64_t>(votes.size())}});
      if (!blocking) return;
    }
    vote->wait();
    vote.reset();
    if (state == State::kWriting) {
      if (std::find(votes.begin(), votes.end(), 0) != votes.end()) continue;
      // Every rank knows every length: the messages need no header.
      const auto view = [](std::string& text) {
        return core::TensorView(text.data(), core::DType::kUInt8, {static_cast<int64_t>(text.size())});
      };
      if (coordinator()) {
        reports.resize(votes.size());
        reports[0] = std::move(local_report);
        for (size_t rank = 1; rank < votes.size(); ++rank) {
          reports[rank].resize(static_cast<size_t>(votes[rank]));
          messages.push_back(comm.irecv(view(reports[rank]), static_cast<int>(rank)));
        }
        local_report.clear();
      } else {
        messages.push_back(comm.isend(view(local_report), 0));
      }
      state = State::kCommitting;
    } else if (votes[0] != 0) {
      const std::string verdict = comm.bcast_string(coordinator() ? local_report : std::string(), 0);
      messages.clear();
      end(verdict);
    }
  }
}

void Saver::Impl::end(const std::string& verdict) {
  state = State::kIdle;
  local_report.clear();
  if (verdict[0] == 'e') throw core::AgreedError(parse_error(verdict));
  last_committed = info.iteration;
  last_path = verdict.substr(1);
  if (coordinator()) core::log_info("ckpt.commit", cat("saved iteration ", info.iteration, " to ", last_path.string()));
}

Saver::Saver(core::Communicator& comm, Options options) : impl_(std::make_unique<Impl>(comm, std::move(options))) {}

Saver::~Saver() = default;

void Saver::reserve(std::span<const ShardData> shards) {
  if (!impl_->options.async) return;
  const int64_t bytes = staged_bytes(shards);
  if (impl_->staging.size_bytes() >= bytes) return;
  impl_->staging.release();
  impl_->staging = impl_->options.arena->allocate(bytes, core::MemoryTag::kCkpt);
  const auto touch = [data = impl_->staging.data()](int64_t begin, int64_t end) {
    std::memset(data + begin, 0, static_cast<size_t>(end - begin));
  };
  if (impl_->options.pool != nullptr) {
    impl_->options.pool->parallel_for(bytes, int64_t{2} << 20, touch);
  } else {
    touch(0, bytes);
  }
}

void Saver::save(const SaveRequest& request) {
  Impl& impl = *impl_;
  const auto before = Clock::now();
  if (pending()) {
    Span span(impl.options.recorder, Category::kUserAnnotation, "ckpt.wait_prev");
    impl.advance(true);
  }
  impl.last_wait_s = seconds_since(before);
  const auto start = Clock::now();
  impl.info = request.info;
  impl.temporary = impl.options.root / cat(generation_name(request.info.iteration, 0), impl.suffix, "_", impl.saves++);
  impl.votes.assign(static_cast<size_t>(impl.comm.size()), 0);
  // A failure here is this rank's report like any other, so that all ranks learn of it together.
  std::string failure = report_of([&] {
    Span span(impl.options.recorder, Category::kUserAnnotation, "ckpt.snapshot");
    reserve(request.shards);
    impl.copy_snapshot(request.shards);
    span.set_bytes(impl.last_bytes);
    return std::string();
  });
  impl.state = Impl::State::kWriting;
  const bool alone = impl.alone();
  impl.start_task([&impl, failure = std::move(failure), alone] {
    std::string report = failure.empty() ? report_of([&] { return impl.write_local(); }) : failure;
    return alone ? impl.commit({report}) : report;
  });
  if (!impl.options.async) impl.advance(true);
  impl.last_blocking_s = seconds_since(start);
}

void Saver::poll() {
  if (pending()) impl_->advance(false);
}

void Saver::finish() {
  if (pending()) impl_->advance(true);
}

bool Saver::pending() const { return impl_->state != Impl::State::kIdle; }
int64_t Saver::last_committed() const { return impl_->last_committed; }
const std::filesystem::path& Saver::last_path() const { return impl_->last_path; }
double Saver::last_blocking_seconds() const { return impl_->last_blocking_s; }
double Saver::last_wait_seconds() const { return impl_->last_wait_s; }
int64_t Saver::last_bytes() const { return impl_->last_bytes; }

}  // namespace ms::ckpt
