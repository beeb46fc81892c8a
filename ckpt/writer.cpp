#include "ckpt/writer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "ckpt/commit.h"
#include "ckpt/copy_box.h"
#include "ckpt/detail/gather.h"
#include "ckpt/detail/mailbox.h"
#include "ckpt/detail/retention_thread.h"
#include "ckpt/detail/save_job.h"
#include "ckpt/detail/staging.h"
#include "ckpt/detail/writer_process.h"
#include "core/comm/agree.h"
#include "core/error.h"
#include "core/io/atomic_directory.h"
#include "core/io/lock_file.h"
#include "core/log.h"
#include "core/printable.h"
#include "core/scheduling.h"
#include "core/signals.h"
#include "core/trace/span.h"

namespace ms::ckpt {

GatherProgress parse_gather_progress(std::string_view name) {
  if (name == "auto") return GatherProgress::kAuto;
  if (name == "thread") return GatherProgress::kWriter;
  core::require_one_of("--ckpt-gather-progress", name, {"auto", "thread", "main"});
  return GatherProgress::kTrainer;
}

namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using core::trace::Category;
using core::trace::Span;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// How long a destructor waits for the other ranks, which may still be writing, or dead.
constexpr double kClosingPatienceS = 5;

constexpr double kForeverS = 1e9;

// One save of this rank, from snapshot to commit.
struct Save {
  SaveJob job;
  Staging* staging = nullptr;     // null: written from the caller's memory
  int buffer = -1;                // index of staging
  std::vector<ShardData> shards;  // to copy; empty after the copy
  std::optional<Error> failed;    // before the writing started
  bool copied = false;            // the caller's memory may now change
  int64_t bytes = 0;
  bool written = false;  // the staging buffer is free
};

}  // namespace

struct Saver::Impl {
  Impl(core::Communicator& communicator, Options opts) : comm(communicator), options(std::move(opts)) {
    if (options.arena == nullptr) options.arena = &own_arena;
    open_root();
    for (int rank = 0; rank < comm.size(); ++rank) writers.push_back(rank);
    if (options.gather) open_gather();
    if (options.async) buffers = std::vector<Staging>(static_cast<size_t>(std::max(1, options.staging_buffers)));
    if (options.async && !options.writer_command.empty()) start_process();
    thread = std::thread([this] { run(); });
  }
  ~Impl() {
    {
      std::lock_guard lock(mutex);
      closing = true;
      closing_since = Clock::now();
    }
    changed.notify_all();
    if (process != nullptr) let_process_go();
    if (gather != nullptr) {
      std::unique_lock lock(mutex);
      wait(lock, [this] { return queue.empty(); });  // the thread may need this one to move messages
    }
    thread.join();
  }

  bool coordinator() const { return comm.rank() == 0; }
  bool alone() const { return comm.size() == 1; }

  void open_root();
  void open_gather();
  void start_process();
  void let_process_go();
  void run();
  void enqueue(std::unique_ptr<Save> save);
  void carry_out(Save& save);
  void copy(Save& save, core::ThreadPool* pool);
  bool wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done, double limit_s = kForeverS);
  std::optional<Error> give_up();
  bool wait_agreed(const std::function<bool()>& done, const std::function<bool()>& hopeless);

  core::Communicator& comm;
  Options options;
  const bool speaks = core::log_enabled(core::LogLevel::kInfo);  // this rank logs: the writer thread cannot find out
  core::Arena own_arena;
  std::unique_ptr<core::LockFile> lock_file;  // coordinator only
  std::string suffix;                         // of temporary directories; same on all ranks
  core::WritePath write_path = core::WritePath::kBuffered;
  std::vector<Staging> buffers;
  std::unique_ptr<WriterProcess> process;
  Incremental incremental;         // used by the writer thread
  RetentionThread retention;       // for the coordinator without a writer process
  std::vector<int> writers;        // ranks that write reports
  int most_gathered = 0;           // maximum number of other ranks that one rank writes for
  std::unique_ptr<Gather> gather;  // null: every rank writes its own shards
  bool moves_messages = false;     // this thread moves the messages of the gather
  int64_t saves = 0;

  // Between the caller and the writer thread.
  std::thread thread;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::unique_ptr<Save>> queue;  // the first is the one the thread is processing
  std::optional<Error> failure;             // the first failed commit or unreported error since finish()
  std::optional<Error> told_to_stop;        // a report that the coordinator waits for will not come
  bool closing = false;
  Clock::time_point closing_since;
  int64_t last_committed = -1;
  std::filesystem::path last_path;

  double last_blocking_s = 0, last_wait_s = 0;
  int64_t last_bytes = 0;
};

// Collective: the coordinator creates and locks the root, chooses the write path and the suffix of temporary
// directories.
void Saver::Impl::open_root() {
  Outcome answer;
  if (coordinator()) {
    answer = outcome_of([&] {
      core::make_directories_durably(options.root);
      lock_file = std::make_unique<core::LockFile>((options.root / kLockName).string());
      if (const int removed = remove_abandoned(options.root); removed > 0) {
        core::log_info(
            "ckpt.recovery",
            cat("removed ", removed, " unfinished files and directories of dead writers in ", options.root.string()));
      }
      const core::WritePathChoice choice = core::choose_write_path(options.root.string(), options.write_path);
      core::log_info("ckpt.write", cat("writing by ", choice.why));
      return cat(static_cast<int>(choice.path), core::temporary_suffix());
    });
  }
  if (!alone()) answer = Outcome::decode(comm.bcast_string(answer.encode(), 0));
  if (answer.failed()) throw core::AgreedError(*answer.error);
  write_path = static_cast<core::WritePath>(answer.content[0] - '0');
  suffix = answer.content.substr(1);
}

// Collective: determines which rank writes for which, and opens the transport.
void Saver::Impl::open_gather() {
  const GatherOptions& wanted = *options.gather;
  core::Endpoint& endpoint = comm.endpoint();
  const std::vector<int>& writer_of = wanted.writer_of;
  MS_CHECK(comm.size() == endpoint.size() && static_cast<int>(writer_of.size()) == comm.size(), "a gather of ",
           writer_of.size(), " ranks on ", comm.size(), " of ", endpoint.size());
  MS_CHECK(options.writer_command.empty(), "a writer process cannot send to other ranks");
  core::collectively(comm, "open the gather",
                     [&] { moves_messages = trainer_moves_messages(wanted.progress, endpoint); });
  const int own_writer = writer_of[static_cast<size_t>(comm.rank())];
  Gather::Options gather_options;
  gather_options.members = {own_writer};
  writers.clear();
  for (int rank = 0; rank < comm.size(); ++rank) {
    const int writer = writer_of[static_cast<size_t>(rank)];
    MS_CHECK(writer_of[static_cast<size_t>(writer)] == writer, "rank ", writer, " writes for rank ", rank,
             ", but not for itself");
    if (writer == rank) writers.push_back(rank);
    if (writer == own_writer && rank != own_writer) gather_options.members.push_back(rank);
    most_gathered =
        std::max(most_gathered, static_cast<int>(std::count(writer_of.begin(), writer_of.end(), writer)) - 1);
  }
  MS_CHECK(writers[0] == 0, "rank 0 does not write");
  gather_options.slice_bytes = wanted.slice_bytes;
  gather_options.timeout_s = options.timeout_s;
  gather_options.give_up = [this] { return give_up(); };
  gather_options.arena = options.arena;
  gather_options.recorder = options.recorder;
  using Side = core::Endpoint::SideProgress;
  gather = std::make_unique<Gather>(endpoint.side_channel(moves_messages ? Side::kThisThread : Side::kOwnThread),
                                    std::move(gather_options));
  core::log_info("ckpt.gather", cat(writers.size(), " of ", comm.size(), " ranks write, shards travel in slices of ",
                                    wanted.slice_bytes, " bytes, moved by ",
                                    moves_messages ? "the trainer's thread" : "the writer's own thread"));
}

void Saver::Impl::start_process() {
  core::collectively(comm, "start the writer process", [&] {
    WriterProcess::Options process_options;
    process_options.command = options.writer_command;
    process_options.buffers = static_cast<int>(buffers.size());
    process_options.lock_descriptor = lock_file != nullptr ? lock_file->descriptor() : -1;
    process_options.nice = options.nice;
    process_options.cpus = options.cpus;
    process = std::make_unique<WriterProcess>(process_options);
  });
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].share(process->shared_memory(static_cast<int>(i)));
}

// The process finishes on its own what the trainer does not wait for.
void Saver::Impl::let_process_go() {
  std::unique_lock lock(mutex);
  const double patience_s = core::termination_signal() != 0 ? 0 : kClosingPatienceS;
  if (!changed.wait_for(lock, std::chrono::duration<double>(patience_s), [&] { return queue.empty(); })) {
    process->hang_up();
  }
}

void Saver::Impl::run() {
  if (process == nullptr) core::schedule_this_thread(options.nice, options.cpus);
  while (true) {
    Save* save = nullptr;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return closing || !queue.empty(); });
      if (queue.empty()) return;
      save = queue.front().get();
    }
    carry_out(*save);
    {
      std::lock_guard lock(mutex);
      queue.pop_front();
    }
    changed.notify_all();
  }
}

void Saver::Impl::enqueue(std::unique_ptr<Save> save) {
  {
    std::lock_guard lock(mutex);
    queue.push_back(std::move(save));
  }
  changed.notify_all();
}

// Waits for `done`, called with the lock held; moves the gather's messages meanwhile if this thread must. False on
// timeout.
bool Saver::Impl::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done, double limit_s) {
  return wait_moving(lock, changed, moves_messages ? &comm.endpoint() : nullptr, done, limit_s);
}

// Copies the caller's memory to staging memory; an error is stored in save.failed.
void Saver::Impl::copy(Save& save, core::ThreadPool* pool) {
  Span span(options.recorder, Category::kUserAnnotation, "ckpt.snapshot", -1, save.bytes);
  const Outcome outcome = outcome_of([&] {
    const auto places = save.staging->places(save.shards);
    save.job.hashes = copy_shards(save.shards, places, pool, options.state_version);
    save.job.data.assign(places.begin(), places.end());
    if (process != nullptr) process->submit(save.job, save.buffer, save.staging->data());
  });
  if (outcome.failed()) save.failed = outcome.error;
  {
    std::lock_guard lock(mutex);
    save.copied = true;
    save.shards.clear();
  }
  changed.notify_all();
}

// Runs on the writer thread.
void Saver::Impl::carry_out(Save& save) {
  if (!save.copied) copy(save, nullptr);
  bool remote = process != nullptr && !save.failed;
  // The process's outcome, or the error that it has ended.
  const auto ask_process = [&] {
    Outcome told;
    const Outcome heard = outcome_of([&] { told = process->next_outcome(); });
    remote = !heard.failed();
    return remote ? told : heard;
  };
  Outcome outcome{{}, save.failed};
  const bool writes = gather == nullptr || gather->writes();
  if (!writes) {
    outcome = gather->send(save.job, save.failed);
  } else if (gather != nullptr) {
    outcome = gather->write(save.job, save.failed, incremental);
  } else if (!outcome.failed()) {
    outcome = remote ? ask_process() : write_part(save.job, incremental, options.recorder);
  }
  std::optional<Error> lost;  // the coordinator cannot find it in the directory
  if (!writes) {
    lost = outcome.error;
  } else if (!coordinator() && (!remote || outcome.failed())) {
    const Outcome left = outcome_of([&] {
      if (outcome.failed()) core::make_directory(save.job.temporary);
      leave_report(save.job, outcome);
    });
    if (left.failed()) lost = outcome.failed() ? outcome.error : left.error;
  }
  {
    std::lock_guard lock(mutex);
    save.written = true;
    if (lost && !failure) {
      failure = lost->within(cat("save iteration ", save.job.info.iteration, ": rank ", comm.rank()));
    }
  }
  changed.notify_all();
  if (!coordinator()) return;
  Outcome verdict;
  if (remote) verdict = ask_process();
  if (!remote) {
    verdict = commit_reported(
        save.job, outcome, [this] { return give_up(); }, options.recorder);
    if (!verdict.failed()) retention.committed(save.job.root, verdict.content, save.job.retention);
  }
  std::lock_guard lock(mutex);
  if (verdict.failed()) {
    if (!failure) failure = verdict.error;
  } else {
    last_committed = save.job.info.iteration;
    last_path = verdict.content;
    if (speaks && options.logs_commits)
      core::log_info("ckpt.commit", cat("saved iteration ", last_committed, " to ", last_path.string()));
  }
}

// Polled by the coordinator while reports are missing.
std::optional<Error> Saver::Impl::give_up() {
  std::lock_guard lock(mutex);
  if (told_to_stop) return told_to_stop;
  if (!closing) return std::nullopt;
  if (core::termination_signal() == 0 && seconds_since(closing_since) < kClosingPatienceS) return std::nullopt;
  return Error(ErrorCode::kPeerFailed, "the run has ended before all ranks had written their files");
}

// Collective: returns true once done() on all ranks, false as soon as hopeless() on one. Waits in short intervals, so
// that the timeout for a silent peer applies to each.
bool Saver::Impl::wait_agreed(const std::function<bool()>& done, const std::function<bool()>& hopeless) {
  while (true) {
    int64_t missing = 0, hopeless_ranks = 0;
    {
      std::unique_lock lock(mutex);
      wait(
          lock, [&] { return done() || hopeless(); }, 0.5);
      missing = done() ? 0 : 1;
      hopeless_ranks = hopeless() ? 1 : 0;
    }
    if (!alone()) {
      const int64_t all = comm.allreduce(missing + (hopeless_ranks << 32));
      missing = all & 0xffffffff;
      hopeless_ranks = all >> 32;
    }
    if (hopeless_ranks > 0) return false;
    if (missing == 0) return true;
  }
}

Saver::Saver(core::Communicator& comm, Options options) : impl_(std::make_unique<Impl>(comm, std::move(options))) {}

Saver::~Saver() = default;

void Saver::reserve(std::span<const ShardData> shards) {
  auto written = written_shards(shards);
  if (impl_->options.full_every > 0) written = cut_into_chunks(written);
  for (Staging& buffer : impl_->buffers) buffer.reserve(written, *impl_->options.arena, impl_->options.pool);
}

void Saver::save(const SaveRequest& request) {
  Impl& impl = *impl_;
  const Options& options = impl.options;
  const auto before = Clock::now();
  auto save = std::make_unique<Save>();
  if (options.async) {
    Span span(options.recorder, Category::kUserAnnotation, "ckpt.wait_prev");
    std::unique_lock lock(impl.mutex);
    impl.wait(lock, [&] {
      int busy = 0;
      for (const auto& other : impl.queue) busy += other->written ? 0 : 1;
      return busy < static_cast<int>(impl.buffers.size());
    });
    save->buffer = static_cast<int>(impl.saves % static_cast<int64_t>(impl.buffers.size()));
    save->staging = &impl.buffers[static_cast<size_t>(save->buffer)];
  }
  impl.last_wait_s = seconds_since(before);
  const auto start = Clock::now();
  SaveJob& job = save->job;
  job.root = options.root;
  job.temporary = options.root / cat(generation_name(request.info.iteration, 0), impl.suffix, "_", impl.saves++);
  job.rank = impl.comm.rank();
  job.writers = impl.writers;
  job.info = request.info;
  job.producer = options.producer;
  job.file = {impl.write_path, options.bytes_per_second, options.compress, kCutCellsBytes, {}};
  job.compress_threads = options.compress_threads;
  job.retention = options.retention;
  job.timeout_s = options.timeout_s;
  job.gathered = impl.most_gathered;
  job.full_every = options.full_every;
  save->shards = written_shards(request.shards);
  if (options.full_every > 0) save->shards = cut_into_chunks(save->shards);
  impl.last_bytes = 0;
  for (const ShardData& shard : save->shards) {
    job.boxes.push_back(shard.meta);
    job.data.push_back(shard.data);
    impl.last_bytes += bytes_of(shard.meta);
  }
  save->bytes = impl.last_bytes;
  if (!options.async) {
    save->copied = true;
    impl.enqueue(std::move(save));
    finish();
    impl.last_blocking_s = seconds_since(start);
    return;
  }
  // An error here is reported like any other error of this rank.
  const Outcome reserved = outcome_of([&] { save->staging->reserve(save->shards, *options.arena, options.pool); });
  if (reserved.failed()) {
    save->failed = reserved.error;
    save->copied = true;
  } else if (!options.lazy_snapshot) {
    impl.copy(*save, options.pool);
  }
  impl.enqueue(std::move(save));
  impl.last_blocking_s = seconds_since(start);
}

void Saver::before_update() {
  std::unique_lock lock(impl_->mutex);
  impl_->wait(lock, [&] {
    return std::all_of(impl_->queue.begin(), impl_->queue.end(), [](const auto& save) { return save->copied; });
  });
}

Saver::Status Saver::status() const {
  std::lock_guard lock(impl_->mutex);
  Status status;
  status.failed = impl_->failure.has_value();
  for (const auto& save : impl_->queue) {
    status.unfinished = status.unfinished || impl_->coordinator() || !save->written;
  }
  return status;
}

void Saver::finish() {
  Impl& impl = *impl_;
  const auto all_written = [&] {
    return std::all_of(impl.queue.begin(), impl.queue.end(), [](const auto& save) { return save->written; });
  };
  // The coordinator would wait forever for a report that a rank could not write to the directory, and for that rank's
  // later saves; a sender would wait forever for a save that the coordinator knows to have failed.
  const auto report_lost = [&] {
    return impl.failure && (!impl.coordinator() || (impl.gather != nullptr && impl.queue.empty()));
  };
  std::optional<Error> lost;
  if (!impl.wait_agreed(all_written, report_lost)) {
    Outcome mine;
    {
      std::lock_guard lock(impl.mutex);
      if (report_lost()) mine.error = impl.failure;
    }
    for (const std::string& text : impl.comm.allgather_strings(mine.encode())) {
      if (!lost) lost = Outcome::decode(text).error;
    }
    std::lock_guard lock(impl.mutex);
    impl.told_to_stop = lost;
  }
  impl.wait_agreed([&] { return impl.queue.empty(); }, [] { return false; });
  for (int64_t removing = 1; removing != 0;) {
    removing = impl.retention.wait(0.5) ? 0 : 1;
    if (!impl.alone()) removing = impl.comm.allreduce(removing);
  }
  Outcome verdict;  // content: the iteration and the path, with a space between them
  {
    std::lock_guard lock(impl.mutex);
    verdict = {cat(impl.last_committed, ' ', impl.last_path.string()), lost ? lost : impl.failure};
    impl.failure.reset();
    impl.told_to_stop.reset();
  }
  if (!impl.alone()) verdict = Outcome::decode(impl.comm.bcast_string(verdict.encode(), 0));
  if (verdict.failed()) throw core::AgreedError(*verdict.error);
  std::lock_guard lock(impl.mutex);
  const size_t space = verdict.content.find(' ');
  impl.last_committed = std::stoll(verdict.content.substr(0, space));
  impl.last_path = verdict.content.substr(space + 1);
}

int64_t Saver::last_committed() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->last_committed;
}
std::filesystem::path Saver::last_path() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->last_path;
}
double Saver::last_blocking_seconds() const { return impl_->last_blocking_s; }
double Saver::last_wait_seconds() const { return impl_->last_wait_s; }
int64_t Saver::last_bytes() const { return impl_->last_bytes; }

}  // namespace ms::ckpt
