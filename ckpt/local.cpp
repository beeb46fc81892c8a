#include "ckpt/local.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "ckpt/commit.h"
#include "ckpt/detail/copy_generation.h"
#include "ckpt/detail/local_choice.h"
#include "ckpt/detail/mailbox.h"
#include "ckpt/detail/save_job.h"
#include "ckpt/reader.h"
#include "ckpt/retention.h"
#include "ckpt/verify.h"
#include "core/comm/agree.h"
#include "core/error.h"
#include "core/io/atomic_directory.h"
#include "core/io/json.h"
#include "core/io/lock_file.h"
#include "core/log.h"
#include "core/scheduling.h"
#include "core/signals.h"
#include "core/trace/span.h"
#include "kernels/checksum.h"

namespace ms::ckpt {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr double kClosingPatienceS = 5;  // while a destructor waits
constexpr double kForeverS = 1e9;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string folder_name(int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank_%05d", rank);
  return name;
}

std::string fingerprint(const nlohmann::json& layout, std::span<const core::ShardedTensor> shards) {
  std::string text = layout.dump();
  const auto add = [&](const core::Dims& dims) {
    for (const int64_t size : dims) text += cat(' ', size);
    text += ';';
  };
  for (const core::ShardedTensor& shard : shards) {
    text += cat('\n', shard.key, '|', core::role_name(shard.role), '|', core::dtype_name(shard.dtype), '|');
    add(shard.global_shape);
    add(shard.global_offset);
    add(shard.local_shape);
  }
  return core::hex16(kernels::xxh3(text.data(), text.size()));
}

}  // namespace

std::vector<core::ShardedTensor> own_tensors(std::span<const core::ShardedTensor> boxes) {
  std::map<std::pair<std::string, core::TensorRole>, int> seen;
  std::vector<core::ShardedTensor> own;
  for (const core::ShardedTensor& box : boxes) {
    core::ShardedTensor& tensor = own.emplace_back(box);
    const int index = seen[{box.key, box.role}]++;
    if (index > 0) tensor.key = cat(box.key, '@', index);
    tensor.global_shape = box.local_shape;
    tensor.global_offset.assign(box.local_shape.size(), 0);
    tensor.replica_id = 0;
  }
  return own;
}

struct LocalTier::Impl {
  Impl(core::Communicator& communicator, Options opts);
  ~Impl();

  void open_channel();
  void lock_replicas();
  fs::path folder_of(int owner) const { return options.root / folder_name(owner); }

  void run();
  void enqueue(std::function<void()> task);
  bool wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done, double limit_s = kForeverS);
  void wait_for_tasks() {
    std::unique_lock lock(mutex);
    wait(lock, [&] { return tasks.empty(); });
  }
  std::optional<Error> give_up();
  void fail(const Error& error);
  void throw_failure();

  void complete(int64_t iteration);
  void replicate(const std::optional<LocalPart>& own);
  std::vector<Generation> older() const;
  std::vector<LocalPart> parts_here(std::vector<std::string>& notes) const;
  void check(std::vector<LocalPart>& parts, const LocalChoice& choice, std::vector<std::string>& damage) const;
  void fetch(const LocalChoice& choice, const std::vector<LocalPart>& parts);

  core::Communicator& comm;
  const Options options;
  const int rank = comm.rank();
  core::Arena own_arena;
  CopyOptions copying;
  core::Communicator alone;
  std::string run_id;       // distinguishes the saves of this run from those of others
  std::vector<int> clique;  // ranks that store this rank's part, in ascending order
  std::unique_ptr<Saver> saver;
  std::map<int, std::unique_ptr<core::LockFile>> replicas;  // by owner: folders here that this rank cleans up
  std::unique_ptr<Mailbox> mailbox;                         // null: nothing has to be sent
  bool moves_messages = false;                              // the thread that calls this object does

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;  // the first one is running
  int unfinished = 0;                       // number of unfinished saves
  std::optional<Error> failure;             // the first
  int64_t sent_bytes = 0;                   // by the last replication
  double sent_in_s = 0;
  std::map<int, fs::path> newest;      // by owner: what the last save left here
  int64_t saved = -1, confirmed = -1;  // iterations
  int64_t saves = 0;                   // calls of save()
  bool closing = false;
  Clock::time_point closing_since;
  std::thread thread;
};

LocalTier::Impl::Impl(core::Communicator& communicator, Options opts)
    : comm(communicator),
      options(std::move(opts)),
      alone(comm.endpoint(), "local", {comm.world_ranks()[static_cast<size_t>(comm.rank())]}, 0) {
  const int jump = options.replication_jump, factor = options.replication_factor;
  MS_CHECK(jump >= 1 && factor >= 1 && (factor == 1 || comm.size() % (jump * factor) == 0), "cliques of ", factor,
           " ranks, ", jump, " apart, of ", comm.size());
  MS_CHECK(comm.size() == comm.endpoint().size(), "local checkpoints of ", comm.size(), " ranks of ",
           comm.endpoint().size());
  const int first = rank / (jump * factor) * (jump * factor) + rank % jump;
  for (int i = 0; i < factor; ++i) clique.push_back(first + i * jump);
  Saver::Options writing = options.writing;
  writing.root = folder_of(rank);
  writing.retention = {};
  writing.full_every = 0;
  writing.gather.reset();
  writing.writer_command.clear();
  if (writing.arena == nullptr) writing.arena = &own_arena;
  copying = {options.slice_bytes, writing.timeout_s, writing.arena};
  core::collectively(comm, "open the local checkpoints",
                     [&] { saver = std::make_unique<Saver>(alone, std::move(writing)); });
  using std::chrono::milliseconds;
  const auto now = std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch());
  run_id = comm.bcast_string(cat(core::hex16(static_cast<uint64_t>(now.count())), core::temporary_suffix()), 0);
  lock_replicas();
  if (factor > 1) open_channel();
  thread = std::thread([this] { run(); });
}

LocalTier::Impl::~Impl() {
  {
    std::lock_guard lock(mutex);
    closing = true;
    closing_since = Clock::now();
  }
  changed.notify_all();
  wait_for_tasks();  // they may need this thread
  thread.join();
}

// Collective.
void LocalTier::Impl::open_channel() {
  core::Endpoint& endpoint = comm.endpoint();
  core::collectively(comm, "open the replication",
                     [&] { moves_messages = trainer_moves_messages(options.progress, endpoint); });
  using Side = core::Endpoint::SideProgress;
  mailbox = std::make_unique<Mailbox>(endpoint.side_channel(moves_messages ? Side::kThisThread : Side::kOwnThread),
                                      [this] { return give_up(); });
}

// A folder that its owner or another job has locked must not be cleaned by this rank.
void LocalTier::Impl::lock_replicas() {
  core::collectively(comm, "open the replicas", [&] {
    for (const int owner : clique) {
      if (owner == rank) continue;
      core::make_directories_durably(folder_of(owner));
      try {
        replicas[owner] = std::make_unique<core::LockFile>((folder_of(owner) / kLockName).string(), 0);
      } catch (const Error& e) {
        core::log_warning("ckpt.local", cat("the replica of rank ", owner, " is no safer than its own part (", e.what(),
                                            "): --replication-jump should reach another node"));
        continue;
      }
      remove_abandoned(folder_of(owner));
    }
  });
}

void LocalTier::Impl::run() {
  core::schedule_this_thread(options.writing.nice, options.writing.cpus);
  while (true) {
    const std::function<void()>* task = nullptr;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return closing || !tasks.empty(); });
      if (tasks.empty()) return;
      task = &tasks.front();
    }
    (*task)();
    {
      std::lock_guard lock(mutex);
      tasks.pop_front();
    }
    changed.notify_all();
  }
}

void LocalTier::Impl::enqueue(std::function<void()> task) {
  {
    std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
  }
  changed.notify_all();
}

// Waits for `done`, called with the lock held; moves messages meanwhile.
bool LocalTier::Impl::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done, double limit_s) {
  return wait_moving(lock, changed, moves_messages ? &comm.endpoint() : nullptr, done, limit_s);
}

std::optional<Error> LocalTier::Impl::give_up() {
  std::lock_guard lock(mutex);
  if (!closing) return std::nullopt;
  if (core::termination_signal() == 0 && seconds_since(closing_since) < kClosingPatienceS) return std::nullopt;
  return Error(ErrorCode::kPeerFailed, "the run has ended before the local checkpoint was whole");
}

void LocalTier::Impl::fail(const Error& error) {
  std::lock_guard lock(mutex);
  if (!failure) failure = error;
}

void LocalTier::Impl::throw_failure() {
  std::optional<Error> first;
  {
    std::lock_guard lock(mutex);
    first.swap(failure);
  }
  if (first) throw *first;
}

// On the thread: finishes a save after the snapshot has been taken.
void LocalTier::Impl::complete(int64_t iteration) {
  std::optional<LocalPart> own;
  const Outcome written = outcome_of([&] {
    saver->finish();
    MS_CHECK(saver->last_committed() == iteration, "iteration ", saver->last_committed(), " of ", iteration);
    own = local_part(read_manifest(saver->last_path()), saver->last_path());
  });
  if (written.failed()) fail(*written.error);
  const Outcome copied = outcome_of([&] {
    if (clique.size() > 1) replicate(own);
  });
  if (copied.failed()) fail(copied.error->within(cat("replicate local iteration ", iteration)));
  std::lock_guard lock(mutex);
  if (own) newest[rank] = own->path;
  --unfinished;
}

// Round k: send to the k-th next member of the clique, receive from the k-th previous one.
void LocalTier::Impl::replicate(const std::optional<LocalPart>& own) {
  core::trace::Span span(options.writing.recorder, core::trace::Category::kUserAnnotation, "ckpt.replicate");
  const auto began = Clock::now();
  const size_t size = clique.size();
  const auto at = static_cast<size_t>(std::find(clique.begin(), clique.end(), rank) - clique.begin());
  int64_t sent = 0;
  mailbox->next_round();
  std::optional<Error> failed;  // later rounds still take place: other ranks wait for this one
  for (size_t k = 1; k < size; ++k) {
    const int to = clique[(at + k) % size], from = clique[(at + size - k) % size];
    const Outcome outcome = outcome_of([&] {
      const CopyResult copied =
          copy_generations(*mailbox, copying, OutgoingCopy{to, own}, IncomingCopy{from, folder_of(from)});
      sent += copied.sent_bytes;
      if (copied.received) {
        std::lock_guard lock(mutex);
        newest[from] = copied.received->path;
      }
    });
    if (!failed) failed = outcome.error;
  }
  if (failed) throw *failed;
  std::lock_guard lock(mutex);
  sent_bytes = sent;
  sent_in_s = seconds_since(began);
}

// Generations other than the last save's in the folders that this rank cleans up, including later iterations: they
// belong to a run that this one does not continue.
std::vector<Generation> LocalTier::Impl::older() const {
  std::vector<Generation> older;
  std::lock_guard lock(mutex);
  for (const auto& [owner, path] : newest) {
    if (owner != rank && replicas.count(owner) == 0) continue;
    for (Generation& generation : list_generations(folder_of(owner))) {
      if (generation.path.filename() != path.filename()) older.push_back(std::move(generation));
    }
  }
  return older;
}

// Parts whose manifest and file sizes are right.
std::vector<LocalPart> LocalTier::Impl::parts_here(std::vector<std::string>& notes) const {
  std::vector<LocalPart> parts;
  std::error_code error;
  for (fs::directory_iterator it(options.root, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().rfind("rank_", 0) != 0) continue;
    for (const Generation& generation : list_generations(it->path())) {
      try {
        auto part = local_part(check_generation(generation.path), generation.path);
        if (part) parts.push_back(std::move(*part));
      } catch (const Error& e) {
        notes.push_back(cat("counts as absent: ", e.what()));
      }
    }
  }
  std::sort(parts.begin(), parts.end(), [](const LocalPart& a, const LocalPart& b) { return a.path < b.path; });
  return parts;
}

// Removes parts that this rank contributes to the choice and whose hashes are wrong.
void LocalTier::Impl::check(std::vector<LocalPart>& parts, const LocalChoice& choice,
                            std::vector<std::string>& damage) const {
  VerifyOptions verify;
  verify.stopped = options.stopped;
  if (options.writing.pool != nullptr) verify.threads = options.writing.pool->num_threads();
  const auto is_damaged = [&](const LocalPart& part) {
    if (part.iteration != choice.iteration || part.save != choice.save ||
        choice.holder[static_cast<size_t>(part.rank)] != rank) {
      return false;
    }
    std::string text;
    try {
      const VerifyReport report = verify_generation(part.path, verify);
      if (!report.findings.empty()) text = cat(part.path.string(), ": ", finding_text(report.findings.front()));
    } catch (const Error& e) {
      if (options.stopped && options.stopped()) throw;
      text = e.what();
    }
    if (!text.empty()) damage.push_back(cat("counts as absent: ", text));
    return !text.empty();
  };
  parts.erase(std::remove_if(parts.begin(), parts.end(), is_damaged), parts.end());
}

// Collective: sends parts from their holders to their ranks, one after another.
void LocalTier::Impl::fetch(const LocalChoice& choice, const std::vector<LocalPart>& parts) {
  if (mailbox == nullptr) open_channel();
  enqueue([&] {
    mailbox->next_round();
    const Outcome outcome = outcome_of([&] {
      for (int owner = 0; owner < comm.size(); ++owner) {
        const int holder = choice.holder[static_cast<size_t>(owner)];
        if (holder == owner || (holder != rank && owner != rank)) continue;
        std::optional<OutgoingCopy> out;
        std::optional<IncomingCopy> in;
        if (holder == rank) {
          out = OutgoingCopy{owner, {}};
          for (const LocalPart& part : parts) {
            if (part.rank == owner && part.iteration == choice.iteration && part.save == choice.save) out->part = part;
          }
        } else {
          in = IncomingCopy{holder, folder_of(rank)};
        }
        const CopyResult copied = copy_generations(*mailbox, copying, out, in);
        MS_CHECK(!in || copied.received, "rank ", holder, " has no part of rank ", rank);
      }
    });
    if (outcome.failed()) fail(*outcome.error);
  });
  wait_for_tasks();
  core::collectively(comm, "fetch the local checkpoint", [&] { throw_failure(); });
}

LocalTier::LocalTier(core::Communicator& comm, Options options)
    : impl_(std::make_unique<Impl>(comm, std::move(options))) {}

LocalTier::~LocalTier() = default;

std::optional<LocalTier::Found> LocalTier::find(const nlohmann::json& layout,
                                                std::span<const core::ShardedTensor> shards, int64_t newer_than) {
  Impl& impl = *impl_;
  LocalOffer mine;
  mine.expects = fingerprint(layout, shards);
  mine.parts = impl.parts_here(mine.notes);
  LocalChoice choice;
  for (int64_t damaged = 1; damaged > 0;) {
    std::vector<LocalOffer> offers;
    for (const std::string& text : impl.comm.allgather_strings(encode_offer(mine))) {
      offers.push_back(decode_offer(text));
      for (const std::string& note : offers.back().notes) {
        core::log_warning("ckpt.local", cat("rank ", offers.size() - 1, ": ", note));
      }
    }
    mine.notes.clear();
    choice = choose_local(offers, newer_than);
    if (choice.iteration < 0) break;
    core::collectively(impl.comm, "check the local checkpoint", [&] { impl.check(mine.parts, choice, mine.notes); });
    damaged = impl.comm.allreduce(static_cast<int64_t>(mine.notes.size()));
  }
  for (const std::string& note : choice.notes) core::log_warning("ckpt.local", note);
  if (choice.iteration < 0) return std::nullopt;
  Found found;
  found.iteration = choice.iteration;
  for (int owner = 0; owner < impl.comm.size(); ++owner) {
    found.fetched += choice.holder[static_cast<size_t>(owner)] != owner ? 1 : 0;
  }
  if (found.fetched > 0) impl.fetch(choice, mine.parts);
  core::collectively(impl.comm, "open the local checkpoint", [&] {
    std::vector<std::string> notes;
    for (const LocalPart& part : impl.parts_here(notes)) {
      if (part.rank != impl.rank || part.iteration != choice.iteration || part.save != choice.save) continue;
      found.source = open_native(part.path);
    }
    MS_CHECK(found.source != nullptr, "the part of rank ", impl.rank, " is gone");
  });
  return found;
}

void LocalTier::reserve(std::span<const ShardData> shards) {
  std::vector<ShardData> own(shards.begin(), shards.end());
  for (ShardData& shard : own) shard.meta.replica_id = 0;
  impl_->saver->reserve(own);
}

void LocalTier::save(const SaveRequest& request) {
  Impl& impl = *impl_;
  MS_CHECK(!status().unfinished, "the local save before is not finished");
  std::vector<core::ShardedTensor> metas;
  for (const ShardData& shard : request.shards) metas.push_back(shard.meta);
  LocalPart part;
  part.rank = impl.rank;
  part.ranks = impl.comm.size();
  part.save = cat(impl.run_id, '.', impl.saves++);
  part.shards = fingerprint(request.info.layout, metas);
  SaveRequest own{request.info, {}};
  own.info.common[kLocalKey] = local_to_json(part);
  metas = own_tensors(metas);
  for (size_t i = 0; i < metas.size(); ++i) own.shards.push_back({std::move(metas[i]), request.shards[i].data});
  const Outcome outcome = outcome_of([&] { impl.saver->save(own); });
  if (outcome.failed()) impl.fail(*outcome.error);  // the rank then offers nothing to its clique
  impl.saved = request.info.iteration;
  {
    std::lock_guard lock(impl.mutex);
    ++impl.unfinished;
  }
  impl.enqueue([&impl, iteration = request.info.iteration] { impl.complete(iteration); });
  if (!impl.options.writing.async) finish();
}

void LocalTier::before_update() { impl_->saver->before_update(); }

Saver::Status LocalTier::status() const {
  std::lock_guard lock(impl_->mutex);
  return {.unfinished = impl_->unfinished > 0, .failed = impl_->failure.has_value()};
}

void LocalTier::confirm() {
  Impl& impl = *impl_;
  if (impl.saved == impl.confirmed) return;
  impl.confirmed = impl.saved;
  std::string line = cat("local iteration ", impl.saved, " is whole on all ranks");
  if (impl.clique.size() > 1) {
    std::lock_guard lock(impl.mutex);
    line += cat(" | replicas of each part: ", impl.clique.size() - 1, " | rank ", impl.rank,
                " sent: ", impl.sent_bytes / 1000000, " MB in ", impl.sent_in_s * 1e3, " ms");
  }
  core::log_info("ckpt.local", line);
  // Listed now, so that the next save is not among them.
  impl.enqueue([generations = impl.older()] {
    for (const Generation& generation : generations) {
      try {
        remove_generation(generation.path.parent_path(), generation);
      } catch (const Error& e) {
        core::log_warning("ckpt.local", e.what());
      }
    }
  });
}

void LocalTier::finish() {
  Impl& impl = *impl_;
  // Waits in short intervals, so that the timeout for a silent peer applies to each.
  for (int64_t unfinished = 1; unfinished > 0;) {
    std::unique_lock lock(impl.mutex);
    impl.wait(
        lock, [&] { return impl.unfinished == 0; }, 0.5);
    unfinished = impl.unfinished;
    lock.unlock();
    unfinished = impl.comm.allreduce(unfinished);
  }
  const int64_t confirmed = std::exchange(impl.confirmed, impl.saved);  // a failed save is never confirmed
  core::collectively(impl.comm, "local save", [&] { impl.throw_failure(); });
  impl.confirmed = confirmed;
  confirm();
  impl.wait_for_tasks();
}

double LocalTier::last_blocking_seconds() const { return impl_->saver->last_blocking_seconds(); }
int64_t LocalTier::last_bytes() const { return impl_->saver->last_bytes(); }

}  // namespace ms::ckpt
