#include "ckpt/detail/outcome.h"

#include <gtest/gtest.h>

#include <fstream>
#include <new>
#include <stdexcept>

#include "ckpt/commit.h"
#include "ckpt/detail/save_job.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::ckpt {
namespace {

using core::Error;
using core::ErrorCode;

TEST(Outcome, ComesBackFromItsText) {
  for (const std::string& text : {std::string(), std::string("a\nb"), std::string("\0e4ok\n", 6)}) {
    const Outcome done = Outcome::decode(Outcome{text, {}}.encode());
    EXPECT_FALSE(done.failed());
    EXPECT_EQ(done.content, text);
    for (const ErrorCode code :
         {ErrorCode::kInvalidArgument, ErrorCode::kNotFound, ErrorCode::kUnsupported, ErrorCode::kCorruptData,
          ErrorCode::kIo, ErrorCode::kOutOfMemory, ErrorCode::kPeerFailed, ErrorCode::kInternal}) {
      const std::string shown = text.c_str();  // an error's text ends at its first 0
      const Outcome failed = Outcome::decode(Outcome{"not sent", Error(code, shown)}.encode());
      ASSERT_TRUE(failed.failed());
      EXPECT_EQ(failed.error->code(), code);
      EXPECT_EQ(failed.error->what(), shown);
      EXPECT_EQ(failed.content, "");
    }
  }
}

TEST(Outcome, RefusesWhatIsNone) {
  for (const std::string& text : {std::string(), std::string("ok"), std::string("o\n"), std::string("OK\n"),
                                  std::string("k\n"), std::string("9\n"), std::string(100, '\0')}) {
    const test::Thrown thrown = test::thrown_by([&] { Outcome::decode(text); });
    EXPECT_EQ(thrown.code, ErrorCode::kCorruptData) << text;
  }
}

TEST(Outcome, OfABodyIsItsContentOrItsError) {
  EXPECT_EQ(outcome_of([] { return std::string("made"); }).content, "made");
  EXPECT_FALSE(outcome_of([] {}).failed());
  EXPECT_EQ(outcome_of([] { throw Error(ErrorCode::kIo, "disk"); }).error->code(), ErrorCode::kIo);
  EXPECT_EQ(outcome_of([] { throw std::bad_alloc(); }).error->code(), ErrorCode::kOutOfMemory);
  EXPECT_EQ(outcome_of([] { throw std::runtime_error("bug"); }).error->code(), ErrorCode::kInternal);
}

// Rank 1's report is damaged: nothing is committed, and the error names the file.
TEST(CommitReported, RefusesADamagedReport) {
  for (const std::string& damaged : {std::string(), std::string("x"), std::string("kept"), std::string(64, '\0')}) {
    test::TemporaryFolder folder;
    SaveJob job;
    job.root = folder.path();
    job.temporary = folder / "iter_0000001.tmp";
    job.writers = {0, 1};
    job.info.iteration = 1;
    job.timeout_s = 5;
    std::filesystem::create_directory(job.temporary);
    std::ofstream(job.temporary / "rank_00001.report") << damaged;
    const Outcome outcome = commit_reported(
        job, {}, [] { return std::nullopt; }, nullptr);
    ASSERT_TRUE(outcome.failed()) << damaged;
    EXPECT_EQ(outcome.error->code(), ErrorCode::kCorruptData) << outcome.error->what();
    EXPECT_NE(std::string(outcome.error->what()).find("save iteration 1: " + job.temporary.string()), std::string::npos)
        << outcome.error->what();
    EXPECT_NE(std::string(outcome.error->what()).find("rank_00001.report"), std::string::npos);
    EXPECT_TRUE(list_generations(folder.path()).empty());
  }
}

}  // namespace
}  // namespace ms::ckpt
