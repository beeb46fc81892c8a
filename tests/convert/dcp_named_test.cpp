// A DCP checkpoint without its config.json, saved by genuine FSDP2 (tests/data/make_dcp_fsdp.py), tensor by tensor.
#include "convert/dcp_named.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/named.h"
#include "core/error.h"
#include "tests/convert/whole_tensor.h"

namespace ms::convert {
namespace {

using core::TensorRole;
using testing::Contains;
using testing::HasSubstr;

const std::string kFolder = core::cat(MS_TEST_DATA, "/dcp_fsdp");

TEST(DcpNamed, WeightsAndMomentsHaveTheNamesOfTheStateDict) {
  std::vector<std::string> decisions;
  const auto source = open_named(kFolder, false, decisions);
  for (const auto& [role, folder] : {std::pair(TensorRole::kParam, "param"), std::pair(TensorRole::kExpAvg, "exp_avg"),
                                     std::pair(TensorRole::kExpAvgSq, "exp_avg_sq")}) {
    const auto whole = open_safetensors(core::cat(kFolder, "/expected/", folder, "/model.safetensors"));
    ASSERT_GT(whole->size(), 10U);
    for (size_t i = 0; i < whole->size(); ++i) {
      const TensorFile::Tensor tensor = (*whole)[i];
      std::vector<std::byte> wanted(tensor.end - tensor.begin);
      whole->read(tensor.begin, wanted);
      EXPECT_EQ(test::whole_tensor(*source, std::string(tensor.name), role), wanted) << folder << " " << tensor.name;
    }
  }
  EXPECT_EQ(test::whole_tensor(*source, "optim.state.model.norm.weight.step", TensorRole::kBuffer).size(), 4U);
  EXPECT_THAT(decisions, Contains(HasSubstr("reading the weights under \"model\"")));
  EXPECT_THAT(decisions, Contains(HasSubstr("entries that are not tensors")));
}

TEST(DcpNamed, EntriesKeepKeysPathsAndContents) {
  const DcpReader reader(kFolder);
  const DcpEntries all = read_dcp_entries(kFolder, true), others = read_dcp_entries(kFolder, false);
  EXPECT_EQ(all.tensors.size(), reader.tensors().size());
  EXPECT_EQ(all.objects.size(), reader.objects().size());
  EXPECT_GT(all.objects.size(), others.objects.size());
  const auto& norm = all.tensors.at({TensorRole::kParam, "model.norm.weight"});
  EXPECT_EQ(norm.key, "model.model.norm.weight");
  EXPECT_EQ(norm.path, (DcpPath{"model", "model.norm.weight"}));
  for (const DcpEntries::Object& object : all.objects) {
    EXPECT_EQ(object.place.path, reader.paths().at(object.place.key));
    EXPECT_FALSE(object.content.pickle.empty()) << object.place.key;
  }
}

TEST(DcpNamed, DropOptimizerLeavesOutOptimizerState) {
  std::vector<std::string> decisions;
  const auto source = open_named(kFolder, true, decisions);
  EXPECT_FALSE(ckpt::has_role(*source, TensorRole::kExpAvg));
  EXPECT_FALSE(ckpt::has_role(*source, TensorRole::kBuffer));
  EXPECT_THAT(decisions, Contains("optimizer state is left out"));
}

}  // namespace
}  // namespace ms::convert
