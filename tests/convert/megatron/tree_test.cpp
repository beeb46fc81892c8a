#include "convert/megatron/tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::ErrorCode;
using test::thrown_by;
using test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;

class MegatronTreeFolderTest : public ::testing::Test {
 protected:
  fs::path root() const { return folder_.path(); }
  // An iteration of the tiny model, under any name.
  fs::path add(const std::string& name) {
    fs::copy(core::cat(MS_TEST_DATA, "/megatron/qk_norm_tp2_bf16/iter_0000007"), root() / name,
             fs::copy_options::recursive);
    return root() / name;
  }
  void track(const std::string& text) { write_file((root() / "latest_checkpointed_iteration.txt").string(), text); }

  const test::TemporaryFolder folder_;
};

TEST_F(MegatronTreeFolderTest, TrackerChoosesTheIteration) {
  add("iter_0000007");
  add("iter_0000009");
  track("7\n");
  EXPECT_EQ(open_megatron_tree(root()).folder.filename(), "iter_0000007");
  track("9");
  const MegatronTree tree = open_megatron_tree(root());
  EXPECT_EQ(tree.folder.filename(), "iter_0000009");
  EXPECT_EQ(tree.tp, 2);
  EXPECT_EQ(tree.pp, 1);
  ASSERT_EQ(tree.ranks.size(), 2u);
  EXPECT_EQ(tree.ranks[1].tp, 1);
  EXPECT_EQ(tree.ranks[1].distributed_optimizer, "");
  EXPECT_TRUE(tree.ranks[1].find("model"));
  EXPECT_FALSE(tree.ranks[1].find("model0"));
  EXPECT_EQ(megatron_sign(root()), "iter_0000009/mp_rank_00");
}

TEST_F(MegatronTreeFolderTest, ReleaseAndIterationFoldersOpen) {
  const fs::path release = add("release");
  track("release");
  EXPECT_EQ(open_megatron_tree(root()).folder.filename(), "release");
  EXPECT_EQ(open_megatron_tree(release).folder, release);
  EXPECT_EQ(megatron_sign(release), "mp_rank_00");
  EXPECT_EQ(megatron_sign(root()), "release/mp_rank_00");
}

TEST_F(MegatronTreeFolderTest, WithoutTrackerTheNewestOpens) {
  add("iter_0000007");
  add("iter_0000012");
  add("release");
  EXPECT_EQ(open_megatron_tree(root()).folder.filename(), "iter_0000012");
}

TEST_F(MegatronTreeFolderTest, IncompleteIterationNamesTheNewestComplete) {
  add("iter_0000005");
  add("iter_0000007");
  fs::remove_all(add("iter_0000008") / "mp_rank_00");  // incomplete too
  fs::remove_all(add("iter_0000009") / "mp_rank_01");
  track("9");
  test::Thrown thrown = thrown_by([&] { open_megatron_tree(root()); });
  EXPECT_EQ(thrown.code, ErrorCode::kCorruptData);
  EXPECT_THAT(thrown.text, AllOf(HasSubstr("latest_checkpointed_iteration.txt names iter_0000009: "),
                                 HasSubstr("mp_rank_01 is missing"),
                                 HasSubstr("The newest complete one is " + (root() / "iter_0000007").string())));
  thrown = thrown_by([&] { open_megatron_tree(root() / "iter_0000009"); });
  EXPECT_THAT(thrown.text, AllOf(HasSubstr("mp_rank_01 is missing"), HasSubstr("iter_0000007: give that")));
  track("10");
  EXPECT_THAT(thrown_by([&] { open_megatron_tree(root()); }).text,
              AllOf(HasSubstr("names iter_0000010"), HasSubstr("no mp_rank_* folder"), HasSubstr("iter_0000007")));
}

TEST_F(MegatronTreeFolderTest, InvalidTrackerIsRefused) {
  add("iter_0000007");
  for (const char* text : {"", "seven", "-7", "7x", "../../etc", "99999999999999999999"}) {
    track(text);
    const test::Thrown thrown = thrown_by([&] { open_megatron_tree(root()); });
    EXPECT_EQ(thrown.code, ErrorCode::kCorruptData) << text;
    EXPECT_THAT(thrown.text, HasSubstr("expected an iteration or \"release\""));
  }
}

TEST_F(MegatronTreeFolderTest, EmptyFolderIsRefused) {
  EXPECT_EQ(megatron_sign(root()), "");
  EXPECT_EQ(megatron_sign(root() / "none"), "");
  EXPECT_EQ(thrown_by([&] { open_megatron_tree(root()); }).code, ErrorCode::kNotFound);
  fs::create_directories(root() / "iter_0000001/mp_rank_00");
  EXPECT_EQ(megatron_sign(root()), "iter_0000001/mp_rank_00");
  EXPECT_THAT(thrown_by([&] { open_megatron_tree(root()); }).text, HasSubstr("no model_optim_rng.pt in it"));
}

TEST_F(MegatronTreeFolderTest, OtherTorchFilesAreRefused) {
  fs::create_directories(root() / "iter_0000001/mp_rank_00");
  const auto put = [&](const char* name) {
    fs::copy_file(core::cat(MS_TEST_DATA, "/torch/", name), root() / "iter_0000001/mp_rank_00/model_optim_rng.pt",
                  fs::copy_options::overwrite_existing);
  };
  put("state_dict.pt");  // an OrderedDict of tensors
  EXPECT_THAT(thrown_by([&] { open_megatron_tree(root()); }).text, HasSubstr("not a dictionary"));
  put("nested.pt");  // args, but no model
  EXPECT_EQ(open_megatron_tree(root()).ranks.size(), 1u);
}

}  // namespace
}  // namespace ms::convert
