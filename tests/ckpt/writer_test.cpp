// The asynchronous saver on thread ranks: agreement, isolation of the snapshot, and what a sick disk leaves.
#include "ckpt/writer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "ckpt/commit.h"
#include "ckpt/manifest.h"
#include "ckpt/verify.h"
#include "core/io/file.h"
#include "core/thread_pool.h"
#include "tests/ckpt/state.h"
#include "tests/support/sick_disk.h"
#include "tests/support/thread_comm.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT
using ms::test::run_thread_ranks;
using ms::test::SickDisk;

core::Communicator world_of(core::Endpoint& endpoint) {
  std::vector<int> ranks;
  for (int r = 0; r < endpoint.size(); ++r) ranks.push_back(r);
  return core::Communicator(endpoint, "ckpt", ranks, 1);
}

std::map<std::string, std::string> contents(const fs::path& directory) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::directory_iterator(directory)) {
    all[entry.path().filename()] = ms::test::read_file(entry.path());
  }
  return all;
}

// Every rank saves once and waits; poison: overwrite the state right after save() returns.
fs::path save_once(const fs::path& root, const ModelLayout& layout, const core::TransformerConfig& config, bool async,
                   bool poison, int64_t iteration = 100) {
  fs::path path;
  run_thread_ranks(layout.world_size(), [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    RankState state(layout, config, endpoint.rank(), mixed_roles());
    core::Arena arena;
    core::ThreadPool pool(2);
    Saver::Options options;
    options.root = root;
    options.async = async;
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

TEST(Saver, EveryLayoutSavesWhatItHolds) {
  const auto config = small_model(127, true);
  for (const ModelLayout& layout :
       {ModelLayout{1, 1, 1, false}, ModelLayout{2, 1, 2, true}, ModelLayout{1, 2, 2, false}}) {
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

TEST(Saver, FilesAreAFunctionOfTheState) {
  const auto config = small_model(127, false, 200);
  const ModelLayout layout{2, 1, 1, false};
  TemporaryFolder a, b, c;
  const auto first = contents(save_once(a.path(), layout, config, true, true));  // poisoned after the snapshot
  EXPECT_EQ(first.size(), 3u);
  EXPECT_EQ(first, contents(save_once(b.path(), layout, config, true, false)));
  EXPECT_EQ(first, contents(save_once(c.path(), layout, config, false, false)));  // in the step
}

TEST(Saver, SavesAreCommittedWithoutAWordBetweenRanks) {
  const auto config = small_model(17);
  const ModelLayout layout{2, 1, 2, true};
  TemporaryFolder folder;
  run_thread_ranks(4, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    core::Communicator training(endpoint, "training", {0, 1, 2, 3}, 2);
    const RankState state(layout, config, endpoint.rank(), mixed_roles());
    Saver::Options options;
    options.root = folder.path();
    Saver saver(comm, options);
    for (int64_t step = 1; step <= 60; ++step) {
      training.allreduce(double(step));  // the training's own messages go on beside
      EXPECT_FALSE(saver.status().failed);
      if (step % 10 == 0) saver.save({make_info(layout, config, step), state.data()});
    }
    for (const auto op : {core::CommOp::kAllreduce, core::CommOp::kBcast, core::CommOp::kSend}) {
      EXPECT_EQ(comm.counter(op).calls, op == core::CommOp::kBcast ? 2 : 0);  // of the beginning: a text and its length
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

TEST(Saver, SameIterationAgainBecomesAnotherAttempt) {
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

// A slow disk: two snapshots are taken at once, the third has to wait for the first.
TEST(Saver, TwoBuffersTakeTwoSnapshots) {
  const auto config = small_model(127, false, 200);
  TemporaryFolder folder;
  run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    core::Communicator comm = world_of(endpoint);
    const RankState state({}, config, 0, mixed_roles());
    core::Arena arena;
    Saver::Options options;
    options.root = folder.path();
    options.staging_buffers = 2;
    options.bytes_per_second = 10'000'000;  // about 0.3 s a save
    options.arena = &arena;
    Saver saver(comm, options);
    saver.reserve(state.data());
    const int64_t staging = arena.current_bytes(core::MemoryTag::kCkpt);
    for (int64_t iteration = 1; iteration <= 4; ++iteration) {
      saver.save({make_info({}, config, iteration), state.data()});
      EXPECT_TRUE(saver.status().unfinished);
      if (iteration == 2) {
        EXPECT_EQ(saver.last_committed(), -1) << "neither of two saves had to wait";
      }
      EXPECT_EQ(saver.last_wait_seconds() > 0.05, iteration > 2) << saver.last_wait_seconds();
    }
    saver.finish();
    EXPECT_EQ(saver.last_committed(), 4);
    EXPECT_EQ(arena.peak_bytes(core::MemoryTag::kCkpt), staging);
    EXPECT_GE(staging, 2 * saver.last_bytes());
    EXPECT_LE(staging, 2 * saver.last_bytes() * 11 / 10 + (4 << 20)) << "pages and huge pages";
  });
  EXPECT_EQ(list_generations(folder.path()).size(), 4u);
}

TEST(Saver, ALazySnapshotIsOfTheStateBeforeTheUpdate) {
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
    // An update that did not wait is found out if it comes under the copy.
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
  save_once(folder.path(), {}, config, true, false, 5000);  // of another run, and later
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

// What has not changed is linked, whatever becomes of the generation it came from.
TEST(Saver, AnIncrementalSaveWritesWhatHasChanged) {
  const auto config = small_model(127, false, 200);
  const ModelLayout layout{2, 1, 1, false};
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
  EXPECT_EQ(names[3], names[2]) << "the box that changes is written anew, the others are those of the first";
  EXPECT_EQ(names[4], full);
  const fs::path second = folder.path() / "iter_0000002";
  EXPECT_TRUE(fs::equivalent(second / "iter_0000001.rank_00000.h5", folder.path() / "iter_0000001/rank_00000.h5"));
  EXPECT_LT(fs::file_size(second / "rank_00001.h5"), fs::file_size(second / "iter_0000001.rank_00001.h5") / 4);
  // The first goes; what was linked stays.
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
  EXPECT_EQ(diff(2, 4), 0) << "the element has its value again";
}

TEST(SaverFaults, WithoutLinksAnIncrementalSaveWritesAll) {
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

// Neither memory nor descriptors grow from save to save, and staging memory is what was set aside.
TEST(Saver, ThreeHundredSavesHoldNoMoreThanOne) {
  const auto config = small_model(127, false, 200);
  TemporaryFolder folder;
  // Synced 300 times: where there is one, on a disk of memory.
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
    int64_t resident = 0;
    std::ptrdiff_t open = 0;
    for (int64_t iteration = 1; iteration <= 300; ++iteration) {
      saver.save({make_info({}, config, iteration), state.data()});
      if (iteration % 50 != 0) continue;
      saver.finish();
      if (iteration == 100) resident = resident_bytes(), open = descriptors();
    }
    EXPECT_LE(resident_bytes(), resident + (1 << 20));
    EXPECT_LE(descriptors(), open);
    EXPECT_EQ(arena.peak_bytes(core::MemoryTag::kCkpt), staging);
    EXPECT_EQ(list_generations(root).size(), 1u);
  });
  if (root != folder / "root") fs::remove_all(root);
}

// The trainer is killed as soon as it has its snapshot: the writer's process commits it.
TEST(SaverProcess, OutlivesTheTrainer) {
  const auto config = small_model(127, false, 200);
  TemporaryFolder folder, other;
  const auto expected = contents(save_once(other.path(), {}, config, true, false, 7));
  const RankState state({}, config, 0, mixed_roles());
  const pid_t child = ::fork();
  if (child == 0) {  // no gtest in here
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
  EXPECT_TRUE(list_generations(folder.path()).empty());
  // It still holds the lock of the root: the next saver waits for it, and does not take its work for abandoned.
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

TEST(SaverProcess, WritesWhatAThreadWritesAndItsDeathIsAnError) {
  const auto config = small_model(127, false, 200);
  const ModelLayout layout{2, 1, 1, false};
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
    // On rank 1 a program that ends at once.
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

TEST(SaverFaults, ShortWritesAndInterruptionsAreNotErrors) {
  const auto config = small_model(17);
  TemporaryFolder a, b;
  const auto healthy = contents(save_once(a.path(), {2, 1, 1, false}, config, true, false));
  SickDisk disk(SickDisk::Kind::kShortWrites, 0, 0);
  EXPECT_EQ(contents(save_once(b.path(), {2, 1, 1, false}, config, true, false)), healthy);
  EXPECT_GT(disk.calls(), 100);
}

// Each failing call fails the generation on every rank with the same text, and leaves the one before as it was.
TEST(SaverFaults, EveryFailingCallLeavesTheOldCheckpoint) {
  using Kind = SickDisk::Kind;
  const auto config = small_model(17);
  const ModelLayout layout{2, 1, 1, false};
  const std::vector<std::pair<Kind, int>> kinds = {{Kind::kWrite, ENOSPC},
                                                   {Kind::kWrite, EIO},
                                                   {Kind::kFsync, EIO},
                                                   {Kind::kAllocate, ENOSPC},
                                                   {Kind::kRename, EIO}};
  for (const auto& [kind, error] : kinds) {
    int failures = 0;
    for (int nth = 0;; ++nth) {
      TemporaryFolder folder;
      const auto before = contents(save_once(folder.path(), layout, config, true, false, 100));
      std::vector<std::string> texts(2);
      int calls = 0;
      {
        SickDisk disk(kind, nth, error);
        run_thread_ranks(2, [&](core::Endpoint& endpoint) {
          core::Communicator comm = world_of(endpoint);
          const RankState state(layout, config, endpoint.rank(), mixed_roles());
          Saver::Options options;
          options.root = folder.path();
          Saver saver(comm, options);
          try {
            saver.save({make_info(layout, config, 200), state.data()});
            saver.finish();
          } catch (const core::Error& e) {
            EXPECT_EQ(e.code(), core::ErrorCode::kIo) << e.what();
            texts[static_cast<size_t>(endpoint.rank())] = e.what();
            EXPECT_FALSE(saver.status().unfinished);
          }
        });
        calls = disk.calls();
      }
      EXPECT_EQ(texts[0], texts[1]);
      const auto latest = find_latest(folder.path());
      ASSERT_TRUE(latest.has_value());
      EXPECT_EQ(contents(folder.path() / "iter_0000100"), before);
      EXPECT_TRUE(verify_generation(latest->generation.path, {}).findings.empty());
      if (texts[0].empty()) {  // committed: the call did not matter, or only the pointer was lost
        EXPECT_EQ(latest->generation.iteration, 200);
      } else {
        ++failures;
        EXPECT_NE(texts[0].find(folder.path().string()), std::string::npos) << texts[0];
      }
      for (const auto& entry : fs::directory_iterator(folder.path())) {
        const bool is_temporary = entry.path().filename().string().find(".tmp-") != std::string::npos;
        EXPECT_FALSE(is_temporary && fs::is_directory(entry.path())) << entry.path();
      }
      if (calls <= nth) break;                          // the run made fewer calls: all have had their turn
      if (nth > 12 && kind == Kind::kWrite) nth += 20;  // writes are many and alike
    }
    EXPECT_GT(failures, 0);
  }
}

TEST(SaverFaults, AFailedRankNamesItselfAndTheNextSaveWorks) {
  const auto config = small_model(17);
  const ModelLayout layout{2, 1, 1, false};
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

// A process that saves as fast as it can is killed at many moments: what is committed is always whole.
TEST(SaverFaults, KilledAtAnyMomentTheNewestLoads) {
  const auto config = small_model(127, false, 200);
  TemporaryFolder folder;
  const RankState state({}, config, 0, mixed_roles());
  int64_t iteration = 0;
  for (int round = 0; round < 12; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {  // no gtest in here: only _exit
      try {
        run_thread_ranks(1, [&](core::Endpoint& endpoint) {
          core::Communicator comm = world_of(endpoint);
          Saver::Options options;
          options.root = folder.path();
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
    char committed = 0;  // in every other round a save has been committed before the clock starts
    if (round % 2 == 0) {
      ASSERT_EQ(::read(ends[0], &committed, 1), 1);
    }
    ::usleep(static_cast<useconds_t>(7919 * round % 40000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    ::close(ends[0]);
    const auto latest = find_latest(folder.path());
    if (!latest) continue;
    EXPECT_GE(latest->generation.iteration, iteration + (round % 2 == 0 ? 1 : 0));
    iteration = latest->generation.iteration;
    EXPECT_TRUE(verify_generation(latest->generation.path, {}).findings.empty());
    for (const Generation& generation : list_generations(folder.path())) {  // all that have the name are whole
      EXPECT_NO_THROW(check_generation(generation.path));
    }
  }
  EXPECT_GT(iteration, 0);
  const auto source = open_native(folder.path());
  expect_loads(*source, {2, 1, 1, false}, config);
  // A new saver clears what the dead ones left.
  save_once(folder.path(), {}, config, true, false, iteration + 1);
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().filename().string().find("iter_0000001.tmp-"), std::string::npos);
  }
}

}  // namespace
}  // namespace ms::ckpt
