// A rank that throws, in every phase of a run and at its messages: no rank waits for it, an agreed phase gives all
// ranks the same error, and the previous checkpoint still loads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>

#include "ckpt/reader.h"
#include "ckpt/verify.h"
#include "core/comm/transport.h"
#include "core/error.h"
#include "tests/support/fault_injection.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using core::ErrorCode;
using test::TinyLayout;

constexpr double kTimeoutS = 60;  // must not be approached: no rank waits for one that has thrown
constexpr const char* kCause = "the disk is on fire";

struct Outcome {
  std::vector<std::optional<core::Error>> errors;  // by rank; nullopt: it succeeded
  double seconds = 0;
};

class FaultyRanks : public testing::Test {
 protected:
  FaultyRanks() {
    config_ = test::tiny_config(folder_.path(), layout_);
    config_.training.train_iters = 2;
    config_.checkpoint.save = folder_ / "checkpoints";
    config_.checkpoint.save_interval = 1;
    test::run_on_threads(config_, layout_.ranks());
    before_ = test::read_tensors(folder_ / "checkpoints/iter_0000002", core::TensorRole::kParam);
    config_.checkpoint.load = config_.checkpoint.save;
    config_.training.train_iters = 4;
  }

  // Runs the trainer on all ranks; stores each rank's error, which also ends the waits of the others.
  Outcome run(const std::function<void(int rank, std::string_view phase)>& at_phase,
              const test::WrapTransport& wrap = {}) {
    Outcome outcome;
    outcome.errors.resize(static_cast<size_t>(layout_.ranks()));
    const auto start = std::chrono::steady_clock::now();
    try {
      test::run_thread_ranks(
          layout_.ranks(),
          [&](core::Endpoint& endpoint) {
            core::ThreadPool pool(1);
            train::TrainerServices services;
            services.open_source = [](const std::filesystem::path& path, int64_t) { return ckpt::open_native(path); };
            const int rank = endpoint.rank();
            if (at_phase) services.at_phase = [&at_phase, rank](std::string_view phase) { at_phase(rank, phase); };
            try {
              train::Trainer trainer(config_, endpoint, pool, nullptr, services);
              trainer.run();
            } catch (const core::Error& e) {
              outcome.errors[static_cast<size_t>(rank)] = e;
              throw;
            }
          },
          kTimeoutS, {}, wrap);
    } catch (const core::Error&) {
    }
    outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return outcome;
  }

  void expect_everyone_has_ended(const Outcome& outcome) {
    EXPECT_LT(outcome.seconds, kTimeoutS / 2);
    for (const auto& error : outcome.errors) EXPECT_TRUE(error.has_value());
  }

  void expect_the_same_error(const Outcome& outcome, ErrorCode code) {
    expect_everyone_has_ended(outcome);
    for (const auto& error : outcome.errors) {
      if (!error) continue;
      EXPECT_EQ(error->code(), code) << error->what();
      EXPECT_STREQ(error->what(), outcome.errors[0]->what());
    }
  }

  void expect_the_old_checkpoint_loads() {
    EXPECT_TRUE(ckpt::verify_generation(folder_ / "checkpoints/iter_0000002", {}).findings.empty());
    EXPECT_EQ(test::read_tensors(folder_ / "checkpoints/iter_0000002", core::TensorRole::kParam), before_);
    config_.training.train_iters = 3;
    EXPECT_EQ(test::run_on_threads(config_, layout_.ranks()).steps.size(), 1u);
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "checkpoints")) {
      EXPECT_EQ(entry.path().filename().string().find(".tmp-"), std::string::npos) << entry.path();
    }
  }

  const TinyLayout layout_{.tp = 2, .pp = 2, .dp = 1};
  test::TemporaryFolder folder_;
  train::TrainerConfig config_;
  std::map<std::string, std::vector<float>> before_;
};

class AgreedPhase : public FaultyRanks, public testing::WithParamInterface<std::tuple<const char*, int>> {};

TEST_P(AgreedPhase, GivesAllRanksTheSameError) {
  const auto [where, who] = GetParam();
  const auto outcome = run([where = where, who = who](int rank, std::string_view phase) {
    if (rank == who && phase == where) throw core::Error(ErrorCode::kIo, kCause);
  });
  expect_the_same_error(outcome, ErrorCode::kIo);
  EXPECT_NE(std::string(outcome.errors[0]->what()).find(core::cat("rank ", who, ": ", kCause)), std::string::npos)
      << outcome.errors[0]->what();
  expect_the_old_checkpoint_loads();
}

INSTANTIATE_TEST_SUITE_P(Phases, AgreedPhase,
                         testing::Combine(testing::Values("config", "build", "load", "data", "save"),
                                          testing::Values(0, 3)),
                         [](const auto& test) {
                           return core::cat(std::get<0>(test.param), "_rank", std::get<1>(test.param));
                         });

// There is no vote within a step: the rank that throws ends the job, and the others learn that it is gone.
TEST_F(FaultyRanks, ErrorWithinAStepEndsAllRanks) {
  for (const char* where : {"forward", "optimizer"}) {
    for (const int who : {0, 3}) {
      SCOPED_TRACE(core::cat(where, " on rank ", who));
      config_.training.train_iters = 4;
      const auto outcome = run([&](int rank, std::string_view phase) {
        if (rank == who && phase == where) throw core::Error(ErrorCode::kCorruptData, kCause);
      });
      expect_everyone_has_ended(outcome);
      EXPECT_STREQ(outcome.errors[static_cast<size_t>(who)]->what(), kCause);
      for (const auto& error : outcome.errors) {
        EXPECT_TRUE(std::string(error->what()) == kCause || error->code() == ErrorCode::kPeerFailed) << error->what();
      }
    }
  }
  expect_the_old_checkpoint_loads();
}

// Fails every write, fsync or allocation of files whose path contains a word, or every rename.
class SickFile final : public core::FileOps {
 public:
  enum class Kind { kWrite, kFsync, kRename };
  SickFile(Kind kind, std::string word) : kind_(kind), word_(std::move(word)) { core::set_file_ops_for_test(this); }
  ~SickFile() override { core::set_file_ops_for_test(nullptr); }
  ssize_t pwrite(int fd, const void* data, size_t size, int64_t offset) override {
    return fails(Kind::kWrite, path_of(fd), ENOSPC) ? -1 : core::FileOps::pwrite(fd, data, size, offset);
  }
  int fsync(int fd) override { return fails(Kind::kFsync, path_of(fd), EIO) ? -1 : core::FileOps::fsync(fd); }
  int rename(const char* from, const char* to, bool replace) override {
    return fails(Kind::kRename, to, EIO) ? -1 : core::FileOps::rename(from, to, replace);
  }

 private:
  static std::string path_of(int fd) {
    char path[4096];
    const ssize_t n = ::readlink(core::cat("/proc/self/fd/", fd).c_str(), path, sizeof path);
    return n > 0 ? std::string(path, static_cast<size_t>(n)) : "";
  }
  bool fails(Kind kind, const std::string& path, int error) const {
    if (kind != kind_ || path.find(word_) == std::string::npos) return false;
    errno = error;
    return true;
  }
  const Kind kind_;
  const std::string word_;
};

TEST_F(FaultyRanks, SaveFailureOnOneRankFailsOnAll) {
  using Kind = SickFile::Kind;
  const std::vector<std::pair<Kind, std::string>> faults = {{Kind::kWrite, "rank_00003.h5"},
                                                            {Kind::kFsync, "rank_00002.h5"},
                                                            {Kind::kWrite, "manifest.json"},
                                                            {Kind::kRename, "iter_0000003"}};
  for (const bool async : {true, false}) {
    for (const auto& [kind, word] : faults) {
      SCOPED_TRACE(core::cat(word, async ? ", asynchronous" : ", synchronous"));
      config_.training.train_iters = 4;
      config_.checkpoint.async_save = async;
      Outcome outcome;
      {
        const SickFile disk(kind, word);
        outcome = run({});
      }
      expect_the_same_error(outcome, ErrorCode::kIo);
      ASSERT_TRUE(outcome.errors[0].has_value());
      EXPECT_NE(std::string(outcome.errors[0]->what()).find(word), std::string::npos) << outcome.errors[0]->what();
      EXPECT_FALSE(std::filesystem::exists(folder_ / "checkpoints/iter_0000003"));
      std::filesystem::remove_all(folder_ / "checkpoints/iter_0000004");  // it may have been in progress, and succeed
    }
  }
  expect_the_old_checkpoint_loads();
}

// Throws at the nth message that a rank posts.
class FailingTransport final : public core::Transport {
 public:
  FailingTransport(std::unique_ptr<core::Transport> inner, std::atomic<int>& left)
      : inner_(std::move(inner)), left_(left) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<core::TransferRequest> isend(const void* data, int64_t size, int peer, int32_t tag) override {
    count();
    return inner_->isend(data, size, peer, tag);
  }
  std::unique_ptr<core::TransferRequest> irecv(void* data, int64_t size, int peer, int32_t tag) override {
    count();
    return inner_->irecv(data, size, peer, tag);
  }

 private:
  void count() {
    if (left_-- == 0) throw core::Error(ErrorCode::kOutOfMemory, kCause);
  }
  std::unique_ptr<core::Transport> inner_;
  std::atomic<int>& left_;
};

// A disk that is full for one write of one rank, in the first step or later; the other ranks wait for no message.
TEST_F(FaultyRanks, AFullDiskUnderASwapGivesAllRanksTheSameErrorAfterTheStep) {
  config_.checkpoint.save.clear();
  config_.training.swap_attention = true;
  config_.training.swap_min_tensor_kib = 0;
  config_.training.swap_dir = folder_.path().string();
  int writes = 0;
  {
    const test::FaultInjection none(test::FaultInjection::Kind::kWrite, INT32_MAX, ENOSPC);
    for (const auto& error : run({}).errors) ASSERT_FALSE(error.has_value()) << error->what();
    writes = none.calls();
    ASSERT_GT(writes, 8);
  }
  for (const int nth : {0, writes / 4, 3 * writes / 4}) {
    SCOPED_TRACE(core::cat("write ", nth, " of ", writes));
    const test::FaultInjection full(test::FaultInjection::Kind::kWrite, nth, ENOSPC);
    const auto outcome = run({});
    expect_the_same_error(outcome, ErrorCode::kIo);
    const std::string text = outcome.errors[0]->what();
    for (const std::string word : {"swap: rank ", "No space left", "--swap-dir"})
      EXPECT_NE(text.find(word), std::string::npos) << text;
  }
  const test::FaultInjection full(test::FaultInjection::Kind::kAllocate, 0, ENOSPC);
  const auto outcome = run({});
  expect_the_same_error(outcome, ErrorCode::kIo);
  EXPECT_NE(std::string(outcome.errors[0]->what()).find("--swap-attention"), std::string::npos);
}

// Configuration, load, forward, backward, optimizer and save all send messages.
TEST_F(FaultyRanks, ErrorAtAnyMessageEndsAllRanks) {
  config_.parallel.shared_memory = false;  // all of it is messages
  constexpr int kVictim = 1, kPlaces = 16;
  std::atomic<int> left{INT32_MAX};
  const test::WrapTransport wrap = [&](std::unique_ptr<core::Transport> inner) -> std::unique_ptr<core::Transport> {
    if (inner->rank() != kVictim) return inner;
    return std::make_unique<FailingTransport>(std::move(inner), left);
  };
  const std::filesystem::path checkpoints = folder_.path() / "checkpoints";
  const auto forget_newer = [&] {
    for (const char* name : {"iter_0000003", "iter_0000004"}) std::filesystem::remove_all(checkpoints / name);
  };
  for (const auto& error : run({}, wrap).errors) ASSERT_FALSE(error.has_value()) << error->what();
  const int messages = INT32_MAX - left;
  ASSERT_GT(messages, 10 * kPlaces);
  for (int place = 0; place < kPlaces; ++place) {
    forget_newer();
    const int nth = static_cast<int>(static_cast<int64_t>(messages) * (2 * place + 1) / (2 * kPlaces));
    SCOPED_TRACE(core::cat("message ", nth, " of ", messages));
    left = nth;
    const auto outcome = run({}, wrap);
    EXPECT_LT(outcome.seconds, kTimeoutS / 2);
    EXPECT_TRUE(outcome.errors[kVictim].has_value());
  }
  forget_newer();
  expect_the_old_checkpoint_loads();
}

}  // namespace
}  // namespace ms
