// The asynchronous saver on thread ranks: agreement, isolation of the snapshot, and disk faults.
#include "ckpt/writer.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "ckpt/commit.h"
#include "ckpt/manifest.h"
#include "ckpt/verify.h"
#include "core/io/file.h"
#include "core/layout/model_layout.h"
#include "core/thread_pool.h"
#include "tests/ckpt/state.h"
#include "tests/support/fault_injection.h"
#include "tests/support/thread_comm.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT
using ms::test::FaultInjection;
using ms::test::run_thread_ranks;

// Every rank saves once and waits; poison: overwrite the state right after save() returns.
fs::path save_once(const fs::path& root, const layout::ModelLayout& layout, const core::TransformerConfig& config,
                   bool async, bool poison, int64_t iteration = 100, std::optional<core::WritePath> write_path = {}) {
  fs::path path;
  run_thread_ranks(layout.world_size(), [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    RankState state(layout, config, endpoint.rank(), mixed_roles());
    core::Arena arena;
    core::ThreadPool pool(2);
    Saver::Options options;
    options.root = root;
    options.async = async;
    options.write_path = write_path;
    options.arena = &arena;
    options.pool = &pool;
    Saver saver(comm, options);
    const SaveRequest request{make_info(layout, config, iteration), state.data()};
    saver.reserve(request.shards);
    const int64_t allocations = arena.system_allocations();
    saver.save(request);
    EXPECT_EQ(arena.system_allocations(), allocations) << "save() must not allocate staging memory again";
    if (poison) {
      for (auto& bytes : state.bytes) std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
    }
    saver.finish();
    EXPECT_EQ(saver.last_committed(), iteration);
    if (endpoint.rank() == 0) path = saver.last_path();
  });
  return path;
}

TEST(Saver, EveryLayoutSavesItsState) {
  const auto config = small_model(127, true);
  for (const layout::ModelLayout& layout :
       {layout::ModelLayout{1, 1, 1, false}, layout::ModelLayout{2, 1, 2, true}, layout::ModelLayout{1, 2, 2, false}}) {
    TemporaryFolder folder;
    const fs::path path = save_once(folder.path(), layout, config, true, false);
    EXPECT_TRUE(verify_generation(path, {}).findings.empty());
    const auto source = open_native(folder.path());
    EXPECT_EQ(source->info().iteration, 100);
    EXPECT_EQ(source->info().model, config);
    EXPECT_EQ(source->info().common["consumed_train_samples"], 6400);
    expect_loads(*source, {4, 2, 1, false}, config);
    EXPECT_EQ(read_pointer(folder.path()), 100);
  }
}

TEST(Saver, FilesDependOnlyOnTheState) {
  const auto config = small_model(127, false, 200);
  const layout::ModelLayout layout{2, 1, 1, false};
  TemporaryFolder a, b, c;
  const auto first = contents(save_once(a.path(), layout, config, true, true));  // poisoned after the snapshot
  EXPECT_EQ(first.size(), 3u);
  EXPECT_EQ(first, contents(save_once(b.path(), layout, config, true, false)));
  EXPECT_EQ(first, contents(save_once(c.path(), layout, config, false, false)));  // synchronous
}

TEST(Saver, CommitsWithoutMessagesBetweenRanks) {
  const auto config = small_model(17);
  const layout::ModelLayout layout{2, 1, 2, true};
  TemporaryFolder folder;
  run_thread_ranks(4, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    core::Communicator training(endpoint, "training", {0, 1, 2, 3}, 2);
    const RankState state(layout, config, endpoint.rank(), mixed_roles());
    Saver::Options options;
    options.root = folder.path();
    Saver saver(comm, options);
    for (int64_t step = 1; step <= 60; ++step) {
      training.allreduce(double(step));  // the training's own messages continue
      EXPECT_FALSE(saver.status().failed);
      if (step % 10 == 0) saver.save({make_info(layout, config, step), state.data()});
    }
    for (const auto op : {core::CommOp::kAllreduce, core::CommOp::kBcast, core::CommOp::kSend}) {
      EXPECT_EQ(comm.counter(op).calls, op == core::CommOp::kBcast ? 2 : 0);  // at start: a text and its length
    }
    saver.finish();
    EXPECT_FALSE(saver.status().unfinished);
    EXPECT_EQ(saver.last_committed(), 60);
  });
  EXPECT_EQ(list_generations(folder.path()).size(), 6u);
  for (const Generation& generation : list_generations(folder.path())) {
    EXPECT_TRUE(verify_generation(generation.path, {}).findings.empty()) << generation.path;
  }
}

TEST(Saver, SecondSaveOfAnIterationIsAnotherAttempt) {
  const auto config = small_model(17);
  TemporaryFolder folder;
  save_once(folder.path(), {}, config, true, false);
  EXPECT_EQ(save_once(folder.path(), {}, config, true, false).filename(), "iter_0000100.r1");
  EXPECT_EQ(find_latest(folder.path())->generation.attempt, 1);
}

TEST(Saver, SecondSaverIsRefusedOnAllRanks) {
  TemporaryFolder folder;
  core::Arena arena;
  std::atomic<int> refused{0};
  run_thread_ranks(2, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    Saver::Options options;
    options.root = folder.path();
    Saver first(comm, options);
    const auto thrown = thrown_by([&] { Saver second(comm, options); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kIo);
    EXPECT_NE(thrown.text.find(core::cat("process ", ::getpid())), std::string::npos) << thrown.text;
    ++refused;
  });
  EXPECT_EQ(refused, 2);
}

// Blocks every fsync while it is closed.
class GatedDisk final : public core::FileOps {
 public:
  GatedDisk() { core::set_file_ops_for_test(this); }
  ~GatedDisk() override { core::set_file_ops_for_test(nullptr); }
  void close() { set(true); }
  void open() { set(false); }
  int fsync(int fd) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !closed_; });
    return core::FileOps::fsync(fd);
  }

 private:
  void set(bool closed) {
    std::lock_guard lock(mutex_);
    closed_ = closed;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
};

// A slow disk: two snapshots are taken immediately, the third must wait for the first.
TEST(Saver, TwoBuffersTakeTwoSnapshots) {
  const auto config = small_model(127, false, 200);
  TemporaryFolder folder;
  GatedDisk disk;
  run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    const RankState state({}, config, 0, mixed_roles());
    core::Arena arena;
    Saver::Options options;
    options.root = folder.path();
    options.staging_buffers = 2;
    options.arena = &arena;
    Saver saver(comm, options);
    saver.reserve(state.data());
    const int64_t staging = arena.current_bytes(core::MemoryTag::kCkpt);
    const auto save = [&](int64_t iteration) { saver.save({make_info({}, config, iteration), state.data()}); };
    disk.close();
    save(1);
    save(2);
    EXPECT_TRUE(saver.status().unfinished);
    EXPECT_EQ(saver.last_committed(), -1) << "neither of two saves had to wait";
    std::atomic<bool> third_returned{false};
    std::thread third([&] {
      save(3);
      third_returned = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(third_returned);
    disk.open();
    third.join();
    save(4);
    saver.finish();
    EXPECT_EQ(saver.last_committed(), 4);
    EXPECT_EQ(arena.peak_bytes(core::MemoryTag::kCkpt), staging);
    EXPECT_GE(staging, 2 * saver.last_bytes());
    EXPECT_LE(staging, 2 * saver.last_bytes() * 11 / 10 + (4 << 20)) << "pages and huge pages";
  });
  EXPECT_EQ(list_generations(folder.path()).size(), 4u);
}

// Hashes are computed from the training's memory, so that corruption of a snapshot while it waits for the disk is
// found.
TEST(Saver, SnapshotCorruptedInMemoryIsDetected) {
  const auto config = small_model(127, false, 200);
  TemporaryFolder folder;
  GatedDisk disk;
  struct Snapshots final : core::Arena::Observer {
    void on_change(const void* address, int64_t delta_bytes, core::MemoryTag tag, int64_t) override {
      if (tag == core::MemoryTag::kCkpt && delta_bytes > 0) {
        buffers.push_back(static_cast<std::byte*>(const_cast<void*>(address)));
      }
    }
    std::vector<std::byte*> buffers;
  } snapshots;
  run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    const RankState state({}, config, 0, mixed_roles());
    core::Arena arena;
    arena.set_observer(&snapshots);
    Saver::Options options;
    options.root = folder.path();
    options.staging_buffers = 2;
    options.arena = &arena;
    Saver saver(comm, options);
    saver.reserve(state.data());
    ASSERT_EQ(snapshots.buffers.size(), 2u);
    disk.close();
    saver.save({make_info({}, config, 1), state.data()});
    saver.save({make_info({}, config, 2), state.data()});  // queued after the first, which waits for the disk
    snapshots.buffers[1][0] ^= std::byte{1};
    disk.open();
    saver.finish();
    arena.set_observer(nullptr);
  });
  EXPECT_TRUE(verify_generation(folder / "iter_0000001", {}).findings.empty());
  const std::vector<Finding> findings = verify_generation(folder / "iter_0000002", {}).findings;
  ASSERT_FALSE(findings.empty());
  EXPECT_FALSE(findings[0].tensor.empty());
  EXPECT_EQ(findings[0].file, "rank_00000.h5");
}

TEST(Saver, LazySnapshotHoldsTheStateBeforeTheUpdate) {
  const auto config = small_model(127, false, 200);
  TemporaryFolder eager, lazy;
  const auto expected = contents(save_once(eager.path(), {}, config, true, false));
  run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    RankState state({}, config, 0, mixed_roles());
    std::atomic<int64_t> version{0};
    Saver::Options options;
    options.root = lazy.path();
    options.lazy_snapshot = true;
    options.state_version = &version;
    Saver saver(comm, options);
    saver.save({make_info({}, config, 100), state.data()});
    saver.before_update();
    ++version;
    for (auto& bytes : state.bytes) std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
    saver.finish();
    EXPECT_EQ(contents(saver.last_path()), expected);
    // An update that does not wait is detected if it happens during the copy.
    std::atomic<bool> done{false};
    std::thread careless([&] {
      while (!done) ++version;
    });
    std::string text;
    for (int64_t i = 1; i <= 200 && text.empty(); ++i) {
      try {
        saver.save({make_info({}, config, 100 + i), state.data()});
        saver.finish();
      } catch (const core::Error& e) {
        EXPECT_EQ(e.code(), core::ErrorCode::kInternal);
        text = e.what();
      }
    }
    done = true;
    careless.join();
    EXPECT_NE(text.find("was updated while its snapshot was taken"), std::string::npos) << text;
  });
}

TEST(Saver, RetentionKeepsTheNewestAndTheMultiples) {
  const auto config = small_model(17);
  TemporaryFolder folder;
  save_once(folder.path(), {}, config, true, false, 5000);  // a later iteration of another run
  run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    const RankState state({}, config, 0, mixed_roles());
    Saver::Options options;
    options.root = folder.path();
    options.retention = {.keep_last = 2, .retain_interval = 30};
    Saver saver(comm, options);
    for (int64_t iteration = 10; iteration <= 80; iteration += 10) {
      saver.save({make_info({}, config, iteration), state.data()});
    }
    saver.finish();
  });
  std::vector<int64_t> kept;
  for (const Generation& generation : list_generations(folder.path())) kept.push_back(generation.iteration);
  EXPECT_EQ(kept, (std::vector<int64_t>{5000, 80, 70, 60, 30}));
}

// Unchanged boxes are linked, even if the generation they came from is removed.
TEST(Saver, IncrementalSaveWritesOnlyChangedBoxes) {
  const auto config = small_model(127, false, 200);
  const layout::ModelLayout layout{2, 1, 1, false};
  TemporaryFolder folder;
  run_thread_ranks(2, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    RankState state(layout, config, endpoint.rank(), mixed_roles());
    Saver::Options options;
    options.root = folder.path();
    options.full_every = 3;
    Saver saver(comm, options);
    for (int64_t iteration = 1; iteration <= 4; ++iteration) {
      if (endpoint.rank() == 1) state.bytes.front()[0] ^= std::byte{1};  // one element of one tensor
      saver.save({make_info(layout, config, iteration), state.data()});
    }
    saver.finish();
  });
  std::vector<std::vector<std::string>> names(5);
  for (const Generation& generation : list_generations(folder.path())) {
    EXPECT_TRUE(verify_generation(generation.path, {}).findings.empty()) << generation.path;
    for (const auto& [name, text] : contents(generation.path)) {
      if (name != kManifestName) names[static_cast<size_t>(generation.iteration)].push_back(name);
    }
  }
  const std::vector<std::string> full = {"rank_00000.h5", "rank_00001.h5"};
  EXPECT_EQ(names[1], full);
  EXPECT_EQ(names[2],
            (std::vector<std::string>{"iter_0000001.rank_00000.h5", "iter_0000001.rank_00001.h5", "rank_00001.h5"}));
  EXPECT_EQ(names[3], names[2]) << "the changed box is written again, the others are links";
  EXPECT_EQ(names[4], full);
  const fs::path second = folder.path() / "iter_0000002";
  EXPECT_TRUE(fs::equivalent(second / "iter_0000001.rank_00000.h5", folder.path() / "iter_0000001/rank_00000.h5"));
  EXPECT_LT(fs::file_size(second / "rank_00001.h5"), fs::file_size(second / "iter_0000001.rank_00001.h5") / 4);
  // After the first generation is removed, its linked files remain.
  remove_generation(folder.path(), {folder.path() / "iter_0000001", 1, 0});
  for (const Generation& generation : list_generations(folder.path())) {
    EXPECT_TRUE(verify_generation(generation.path, {}).findings.empty()) << generation.path;
  }
  const auto diff = [&](int64_t a, int64_t b) {
    const auto left = open_native(folder.path() / generation_name(a, 0));
    const auto right = open_native(folder.path() / generation_name(b, 0));
    int different = 0;
    for (const core::ShardedTensor& shard : left->shards()) {
      different += left->logical_xxh3(shard.key, shard.role) == right->logical_xxh3(shard.key, shard.role) ? 0 : 1;
    }
    return different;
  };
  EXPECT_GE(diff(2, 3), 1);
  EXPECT_EQ(diff(2, 4), 0) << "the second flip restored the element";
}

TEST(SaverFaults, WithoutHardLinksIncrementalSaveWritesAll) {
  class NoLinks final : public core::FileOps {
   public:
    NoLinks() { core::set_file_ops_for_test(this); }
    ~NoLinks() override { core::set_file_ops_for_test(nullptr); }
    int link(const char*, const char*) override {
      errno = EPERM;
      return -1;
    }
  };
  const auto config = small_model(127, false, 200);
  TemporaryFolder folder;
  const NoLinks disk;
  run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    const RankState state({}, config, 0, mixed_roles());
    Saver::Options options;
    options.root = folder.path();
    options.full_every = 10;
    Saver saver(comm, options);
    for (int64_t iteration = 1; iteration <= 2; ++iteration)
      saver.save({make_info({}, config, iteration), state.data()});
    saver.finish();
  });
  EXPECT_EQ(contents(folder.path() / "iter_0000001").size(), 2u);
  const auto second = contents(folder.path() / "iter_0000002");
  EXPECT_EQ(second.size(), 2u);
  EXPECT_EQ(second.count("rank_00000.h5"), 1u);
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// Neither memory nor descriptors grow from save to save, and staging memory is exactly what was reserved.
TEST(Saver, ThreeHundredSavesUseNoMoreMemoryThanOne) {
  const auto config = small_model(127, false, 200);
  TemporaryFolder folder;
  // Synced 300 times: use a file system in memory if there is one.
  const fs::path root =
      fs::exists("/dev/shm") ? fs::path(core::cat("/dev/shm/ms_saves_", ::getpid())) : fs::path(folder / "root");
  run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    const RankState state({}, config, 0, mixed_roles());
    core::Arena arena;
    Saver::Options options;
    options.root = root;
    options.arena = &arena;
    options.retention.keep_last = 1;
    Saver saver(comm, options);
    saver.reserve(state.data());
    const int64_t staging = arena.current_bytes(core::MemoryTag::kCkpt);
    const auto descriptors = [] {
      return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
    };
    std::map<int64_t, int64_t> resident;  // by iteration
    std::ptrdiff_t open = 0;
    for (int64_t iteration = 1; iteration <= 300; ++iteration) {
      saver.save({make_info({}, config, iteration), state.data()});
      if (iteration % 50 != 0) continue;
      saver.finish();
      resident[iteration] = resident_bytes();
      if (iteration == 100) open = descriptors();
    }
#if !defined(__SANITIZE_ADDRESS__)  // the address sanitizer delays frees
    // A leak grows in both halves; the allocator's own variation in one.
    EXPECT_LE(std::min(resident[200] - resident[100], resident[300] - resident[200]), 256 << 10);
#endif
    EXPECT_LE(descriptors(), open);
    EXPECT_EQ(arena.peak_bytes(core::MemoryTag::kCkpt), staging);
    EXPECT_EQ(list_generations(root).size(), 1u);
  });
  if (root != folder / "root") fs::remove_all(root);
}

// The trainer is killed as soon as it has its snapshot: the writer process commits it.
TEST(SaverProcess, OutlivesTheTrainer) {
  const auto config = small_model(127, false, 200);
  TemporaryFolder folder, other;
  const auto expected = contents(save_once(other.path(), {}, config, true, false, 7));
  const RankState state({}, config, 0, mixed_roles());
  const pid_t child = ::fork();
  if (child == 0) {  // do not use gtest in the child
    try {
      run_thread_ranks(1, [&](core::Endpoint& endpoint) {
        core::Communicator comm = world_of(endpoint);
        Saver::Options options;
        options.root = folder.path();
        options.bytes_per_second = 10'000'000;
        options.writer_command = {MS_BIN "/mstrain", "--checkpoint-writer-process"};
        Saver saver(comm, options);
        saver.save({make_info({}, config, 7), state.data()});
        ::kill(::getpid(), SIGKILL);
      });
    } catch (...) {
    }
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  // The process still holds the lock of the root: the next saver waits for it and does not remove its files.
  run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    Saver::Options options;
    options.root = folder.path();
    Saver second(comm, options);
    EXPECT_EQ(list_generations(folder.path()).size(), 1u);
  });
  ASSERT_EQ(list_generations(folder.path()).size(), 1u);
  EXPECT_EQ(contents(list_generations(folder.path())[0].path), expected);
}

TEST(SaverProcess, WritesTheFilesOfAThreadAndItsDeathIsAnError) {
  const auto config = small_model(127, false, 200);
  const layout::ModelLayout layout{2, 1, 1, false};
  TemporaryFolder folder, other;
  const auto expected = contents(save_once(other.path(), layout, config, true, true));
  run_thread_ranks(2, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    RankState state(layout, config, endpoint.rank(), mixed_roles());
    Saver::Options options;
    options.root = folder.path();
    options.writer_command = {MS_BIN "/mstrain", "--checkpoint-writer-process"};
    Saver saver(comm, options);
    saver.save({make_info(layout, config, 100), state.data()});
    for (auto& bytes : state.bytes) std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
    saver.finish();
    EXPECT_EQ(saver.last_committed(), 100);
    EXPECT_EQ(contents(saver.last_path()), expected);
  });
  run_thread_ranks(2, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    const RankState state(layout, config, endpoint.rank(), mixed_roles());
    Saver::Options options;
    options.root = folder.path();
    // On rank 1, a program that exits at once.
    options.writer_command = {MS_BIN "/mstrain", "--checkpoint-writer-process"};
    if (endpoint.rank() == 1) options.writer_command = {"/bin/true"};
    Saver saver(comm, options);
    saver.save({make_info(layout, config, 200), state.data()});
    const auto thrown = thrown_by([&] { saver.finish(); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kIo);
    EXPECT_NE(thrown.text.find("rank 1: "), std::string::npos) << thrown.text;
    EXPECT_NE(thrown.text.find("writer process"), std::string::npos) << thrown.text;
  });
  EXPECT_EQ(list_generations(folder.path()).size(), 1u);
}

// Each write path, forced, on each kind of file system that this machine has.
enum class Place { kTemporary, kMemory, kOverlay };

class OverlayMount {  // mounted at `folder`/merged, over an empty lower folder
 public:
  explicit OverlayMount(const fs::path& folder) : merged_(folder / "merged") {
    for (const char* part : {"lower", "upper", "work", "merged"}) fs::create_directory(folder / part);
    const std::string options =
        core::cat("lowerdir=", (folder / "lower").string(), ",upperdir=", (folder / "upper").string(),
                  ",workdir=", (folder / "work").string());
    if (::mount("overlay", merged_.c_str(), "overlay", 0, options.c_str()) != 0) error_ = std::strerror(errno);
  }
  ~OverlayMount() {
    if (error_.empty()) ::umount2(merged_.c_str(), MNT_DETACH);
  }
  OverlayMount(const OverlayMount&) = delete;
  OverlayMount& operator=(const OverlayMount&) = delete;
  const fs::path& path() const { return merged_; }
  const std::string& error() const { return error_; }

 private:
  fs::path merged_;
  std::string error_;
};

class SaverFaults : public ::testing::TestWithParam<std::tuple<core::WritePath, Place>> {
 protected:
  void SetUp() override {
    const auto [write_path, place] = GetParam();
    root_ = folder_.path();
    if (place == Place::kMemory) {
      if (!fs::is_directory("/dev/shm")) GTEST_SKIP() << "SKIPPED: no /dev/shm";
      memory_ = fs::path("/dev/shm") / folder_.path().filename();
      root_ = memory_;
    }
    if (place == Place::kOverlay) {
      overlay_ = std::make_unique<OverlayMount>(folder_.path());
      if (!overlay_->error().empty()) GTEST_SKIP() << "SKIPPED: cannot mount an overlay: " << overlay_->error();
      root_ = overlay_->path();
    }
    fs::create_directories(root_);
    try {
      EXPECT_EQ(core::choose_write_path(root_.string(), write_path).path, write_path);
    } catch (const core::Error& e) {
      // A forced path that does not work here is refused, never replaced.
      EXPECT_EQ(e.code(), core::ErrorCode::kUnsupported) << e.what();
      EXPECT_NE(write_path, core::WritePath::kBuffered) << e.what();
      GTEST_SKIP() << "SKIPPED: " << e.what();
    }
  }
  ~SaverFaults() override {
    std::error_code ignored;
    if (!memory_.empty()) fs::remove_all(memory_, ignored);
  }

  // A new, empty root.
  fs::path new_root() { return root_ / core::cat("root", roots_++); }
  static std::optional<core::WritePath> write_path() { return std::get<0>(GetParam()); }

  TemporaryFolder folder_;
  fs::path root_, memory_;
  std::unique_ptr<OverlayMount> overlay_;
  int roots_ = 0;
};

std::string fault_name(const ::testing::TestParamInfo<SaverFaults::ParamType>& info) {
  const char* const kPlaces[] = {"temporary", "memory", "overlay"};
  return core::cat(core::write_path_name(std::get<0>(info.param)), "_on_",
                   kPlaces[static_cast<size_t>(std::get<1>(info.param))]);
}
constexpr core::WritePath kWritePaths[] = {core::WritePath::kIoUring, core::WritePath::kDirect,
                                           core::WritePath::kBuffered};
constexpr Place kPlacesToWrite[] = {Place::kTemporary, Place::kMemory, Place::kOverlay};
INSTANTIATE_TEST_SUITE_P(Paths, SaverFaults,
                         ::testing::Combine(::testing::ValuesIn(kWritePaths), ::testing::ValuesIn(kPlacesToWrite)),
                         fault_name);

// Matrices above 64 KiB, which use the write path, and small tensors, which are packed.
core::TransformerConfig fault_model() { return small_model(127, false, 160); }

TEST_P(SaverFaults, ShortWritesAndInterruptionsAreNotErrors) {
  const auto config = fault_model();
  const auto healthy = contents(save_once(new_root(), {2, 1, 1, false}, config, true, false, 100, write_path()));
  FaultInjection disk(FaultInjection::Kind::kShortWrites, 0, 0);
  EXPECT_EQ(contents(save_once(new_root(), {2, 1, 1, false}, config, true, false, 100, write_path())), healthy);
  EXPECT_GT(disk.calls(), 100);
}

// Each failing call fails the generation on every rank with the same text, and leaves the previous one unchanged.
TEST_P(SaverFaults, EveryFailingCallKeepsThePreviousCheckpoint) {
  using Kind = FaultInjection::Kind;
  const auto config = fault_model();
  const layout::ModelLayout layout{2, 1, 1, false};
  const bool sampled = std::getenv("MS_NIGHTLY") == nullptr;
  const std::vector<std::pair<Kind, int>> kinds = {{Kind::kWrite, ENOSPC},
                                                   {Kind::kWrite, EIO},
                                                   {Kind::kFsync, EIO},
                                                   {Kind::kAllocate, ENOSPC},
                                                   {Kind::kRename, EIO}};
  for (const auto& [kind, error] : kinds) {
    int failures = 0;
    for (int nth = 0;; ++nth) {
      const fs::path root = new_root();
      const auto before = contents(save_once(root, layout, config, true, false, 100, write_path()));
      std::vector<std::string> texts(2);
      int calls = 0;
      {
        FaultInjection disk(kind, nth, error);
        run_thread_ranks(2, [&](core::Endpoint& endpoint) {
          core::Communicator comm = world_of(endpoint);
          const RankState state(layout, config, endpoint.rank(), mixed_roles());
          Saver::Options options;
          options.root = root;
          options.write_path = write_path();
          std::optional<Saver> saver;
          try {
            saver.emplace(comm, options);
            saver->save({make_info(layout, config, 200), state.data()});
            saver->finish();
          } catch (const core::Error& e) {
            EXPECT_EQ(e.code(), core::ErrorCode::kIo) << e.what();
            texts[static_cast<size_t>(endpoint.rank())] = e.what();
            EXPECT_FALSE(saver && saver->status().unfinished);
          }
        });
        calls = disk.calls();
      }
      EXPECT_EQ(texts[0], texts[1]);
      const auto latest = find_latest(root);
      ASSERT_TRUE(latest.has_value());
      EXPECT_EQ(contents(root / "iter_0000100"), before);
      EXPECT_TRUE(verify_generation(latest->generation.path, {}).findings.empty());
      if (texts[0].empty()) {  // committed: the call was not essential, or only the pointer was lost
        EXPECT_EQ(latest->generation.iteration, 200);
      } else {
        ++failures;
        EXPECT_NE(texts[0].find(root.string()), std::string::npos) << texts[0];
      }
      for (const auto& entry : fs::directory_iterator(root)) {
        const bool is_temporary = entry.path().filename().string().find(".tmp-") != std::string::npos;
        EXPECT_FALSE(is_temporary && fs::is_directory(entry.path())) << entry.path();
      }
      if (calls <= nth) break;  // the run made fewer calls: all have failed once
      fs::remove_all(root);
      if (sampled && failures == 2 && std::get<1>(GetParam()) != Place::kTemporary) break;
      if (sampled) nth += kind == Kind::kWrite ? 23 : 4;
      if (kind == Kind::kWrite && nth > 12) nth += 20;  // there are many similar writes
    }
    EXPECT_GT(failures, 0);
  }
}

TEST(SaverErrors, FailedRankIsNamedAndNextSaveWorks) {
  const auto config = small_model(17);
  const layout::ModelLayout layout{2, 1, 1, false};
  TemporaryFolder folder;
  run_thread_ranks(2, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    const RankState state(layout, config, endpoint.rank(), mixed_roles());
    Saver::Options options;
    options.root = folder.path();
    Saver saver(comm, options);
    auto broken = state.data();
    if (endpoint.rank() == 1) broken.pop_back();  // a hole in the last tensor
    saver.save({make_info(layout, config, 100), broken});
    const auto thrown = thrown_by([&] { saver.finish(); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kInternal);
    EXPECT_NE(thrown.text.find("no shard holds element"), std::string::npos) << thrown.text;
    saver.save({make_info(layout, config, 200), state.data()});
    saver.finish();
    EXPECT_EQ(saver.last_committed(), 200);
  });
  EXPECT_EQ(list_generations(folder.path()).size(), 1u);
}

// A lost report also concerns the next save, which is queued on the same thread.
TEST(SaverErrors, LaterSavesDoNotWaitForALostReport) {
  class NoReports final : public core::FileOps {
   public:
    NoReports() { core::set_file_ops_for_test(this); }
    ~NoReports() override { core::set_file_ops_for_test(nullptr); }
    int rename(const char* from, const char* to, bool replace) override {
      if (!std::string_view(to).ends_with("rank_00001.report")) return core::FileOps::rename(from, to, replace);
      errno = EIO;
      return -1;
    }
  };
  const auto config = small_model(17);
  const layout::ModelLayout layout{2, 1, 1, false};
  TemporaryFolder folder;
  const NoReports disk;
  run_thread_ranks(2, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    const RankState state(layout, config, endpoint.rank(), mixed_roles());
    Saver::Options options;
    options.root = folder.path();
    options.staging_buffers = 2;
    Saver saver(comm, options);
    for (const int64_t iteration : {100, 200}) saver.save({make_info(layout, config, iteration), state.data()});
    const auto thrown = thrown_by([&] { saver.finish(); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kIo);
    EXPECT_NE(thrown.text.find("save iteration 100: rank 1"), std::string::npos) << thrown.text;
  });
  EXPECT_TRUE(list_generations(folder.path()).empty());
}

// A process that saves as fast as it can is killed at many moments: every committed generation is complete.
TEST_P(SaverFaults, KilledAtAnyMomentNewestCheckpointLoads) {
  const auto config = small_model(127, false, 200);
  const fs::path root = new_root();
  const RankState state({}, config, 0, mixed_roles());
  int64_t iteration = 0;
  const int rounds = std::getenv("MS_NIGHTLY") != nullptr ? 30 : 4;
  for (int round = 0; round < rounds; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {  // do not use gtest in the child: only _exit
      try {
        run_thread_ranks(1, [&](core::Endpoint& endpoint) {
          core::Communicator comm = world_of(endpoint);
          Saver::Options options;
          options.root = root;
          options.write_path = write_path();
          options.retention.keep_last = 20;
          Saver saver(comm, options);
          for (int64_t i = iteration + 1;; ++i) {
            saver.save({make_info({}, config, i), state.data()});
            if (saver.last_committed() > iteration && ::write(ends[1], "c", 1) != 1) ::_exit(2);
          }
        });
      } catch (...) {
      }
      ::_exit(1);
    }
    ::close(ends[1]);
    char committed = 0;  // in every other round a save is committed before the timer starts
    if (round % 2 == 0) {
      ASSERT_EQ(::read(ends[0], &committed, 1), 1);
    }
    ::usleep(static_cast<useconds_t>(7919 * (round + 1) % 40000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    ::close(ends[0]);
    const auto latest = find_latest(root);
    if (!latest) continue;
    EXPECT_GE(latest->generation.iteration, iteration + (round % 2 == 0 ? 1 : 0));
    iteration = latest->generation.iteration;
    EXPECT_TRUE(verify_generation(latest->generation.path, {}).findings.empty());
    for (const Generation& generation : list_generations(root)) {  // every generation with a committed name is complete
      EXPECT_NO_THROW(check_generation(generation.path));
    }
  }
  EXPECT_GT(iteration, 0);
  const auto source = open_native(root);
  expect_loads(*source, {2, 1, 1, false}, config);
  // A new saver removes what the dead ones left.
  save_once(root, {}, config, true, false, iteration + 1);
  for (const auto& entry : fs::directory_iterator(root)) {
    EXPECT_EQ(entry.path().filename().string().find("iter_0000001.tmp-"), std::string::npos);
  }
}

}  // namespace
}  // namespace ms::ckpt
