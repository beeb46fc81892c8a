#include "convert/torch/adam_state.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "convert/torch/torch_writer.h"
#include "tests/support/temporary_folder.h"

namespace ms::convert {
namespace {

// A list: 7, 8.0, a scalar fp32 tensor of 9, a vector, a text, -1.
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

TEST(AdamState, AGroupSaysItsSettings) {
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
                        });
                      }),
                      "here");
  nlohmann::json common = nlohmann::json::object();
  add_adam_group(pickle.root(), common);
  EXPECT_EQ(common,
            nlohmann::json::parse(R"({"step": 12, "config": {"optimizer": {"adam_beta1": 0.8, "adam_beta2": 0.9}}})"));
}

}  // namespace
}  // namespace ms::convert
