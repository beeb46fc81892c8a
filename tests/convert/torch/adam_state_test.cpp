#include "convert/torch/adam_state.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "convert/torch/torch_writer.h"
#include "tests/support/temporary_folder.h"

namespace ms::convert {
namespace {

// A list: 7, 8.0, a scalar fp32 tensor of 9, a vector, a string, -1.
TEST(AdamState, CountsAreNumbersOrScalarTensors) {
  const test::TemporaryFolder folder;
  const std::string pickle = make_pickle([](PickleWriter& p) {
    p.list([&] {
      p.integer(7);
      p.real(8.0);
      write_torch_tensor(p, {SafetensorsDType::kF32, 0, 2, 1, {}});
      write_torch_tensor(p, {SafetensorsDType::kF32, 0, 2, 0, {2}});
      p.text("10");
      p.integer(-1);
    });
  });
  const std::string storage("\0\0\0\0\0\0\x10\x41", 8);  // 0, 9
  test::write_file(folder / "x.pt", make_torch_archive(pickle, std::span(&storage, 1)));
  const TorchFile file(folder / "x.pt");
  std::vector<std::optional<int64_t>> counts;
  for (const PickleValue value : file.root().items()) counts.push_back(read_count(file, value));
  EXPECT_EQ(counts, (std::vector<std::optional<int64_t>>{7, 8, 9, std::nullopt, std::nullopt, std::nullopt}));
}

TEST(AdamState, GroupSettingsAreRead) {
  const Pickle pickle(make_pickle([](PickleWriter& p) {
                        p.dict([&] {
                          p.text("step");
                          p.integer(12);
                          p.text("betas");
                          p.tuple([&] {
                            p.real(0.8);
                            p.real(0.9);
                          });
                          p.text("eps");
                          p.text("small");
                          p.text("lr");
                          p.real(3e-4);
                          p.text("weight_decay");
                          p.real(0.05);
                          p.text("min_lr");
                          p.integer(0);
                          p.text("fused");
                          p.none();
                          p.text("amsgrad");
                          p.boolean(false);
                          p.text("is_expert_parallel");
                          p.boolean(true);
                          p.text("params");
                          p.list([&] { p.integer(0); });
                        });
                      }),
                      "here");
  const ckpt::OptimizerGroup group = read_adam_group(nullptr, pickle.root());
  EXPECT_EQ(group.step, 12);
  EXPECT_EQ(group.beta1, 0.8);
  EXPECT_EQ(group.beta2, 0.9);
  EXPECT_EQ(group.eps, std::nullopt);
  EXPECT_EQ(group.lr, 3e-4);
  EXPECT_EQ(group.weight_decay, 0.05);
  EXPECT_EQ(group.min_lr, 0.0);
  EXPECT_EQ(group.options, nlohmann::json::parse(R"({"fused": null, "amsgrad": false})"));
  EXPECT_TRUE(group.params.empty());
}

// capturable=True stores the rate in a tensor.
TEST(AdamState, TensorRateIsRead) {
  const test::TemporaryFolder folder;
  const std::string pickle = make_pickle([](PickleWriter& p) {
    p.dict([&] {
      p.text("lr");
      write_torch_tensor(p, {SafetensorsDType::kF32, 0, 1, 0, {}});
    });
  });
  const std::string storage("\0\0\x80\x3e", 4);  // 0.25
  test::write_file(folder / "x.pt", make_torch_archive(pickle, std::span(&storage, 1)));
  const TorchFile file(folder / "x.pt");
  EXPECT_EQ(read_adam_group(&file, file.root()).lr, 0.25);
  EXPECT_EQ(read_adam_group(nullptr, file.root()).lr, std::nullopt);
}

}  // namespace
}  // namespace ms::convert
