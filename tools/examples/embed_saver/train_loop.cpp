// A training loop of somebody's own, linear regression with momentum, that saves every 20 iterations without stopping
// and continues from the newest whole checkpoint.
//
//   train_loop CHECKPOINTS ITERATIONS
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/commit.h"
#include "ckpt/reader.h"
#include "ckpt/writer.h"
#include "core/arena.h"
#include "core/comm/communicator.h"
#include "core/comm/single_transport.h"
#include "core/rng.h"

namespace {

using namespace ms;

constexpr int kWidth = 256, kSamples = 64, kSaveInterval = 20;

struct Model {
  std::vector<float> weight = std::vector<float>(kWidth), momentum = std::vector<float>(kWidth);
};

// What a checkpoint calls this tensor, and where this rank has it. Here one rank holds all of it; a shard of a larger
// tensor says its global_offset and local_shape.
core::ShardedTensor description(core::TensorRole role) {
  core::ShardedTensor tensor;
  tensor.key = "regression.weight";
  tensor.role = role;
  tensor.global_shape = tensor.local_shape = {kWidth};
  tensor.global_offset = {0};
  return tensor;
}

ckpt::ShardData shard(core::TensorRole role, std::vector<float>& values) {
  return {description(role), reinterpret_cast<const std::byte*>(values.data())};
}

// Reads the newest whole checkpoint into the model; returns its iteration, 0 if there is none.
int64_t load(const std::filesystem::path& root, Model& model) {
  if (!ckpt::find_latest(root)) return 0;
  const auto source = ckpt::open_native(root);
  for (size_t i = 0; i < source->shards().size(); ++i) {
    const core::ShardedTensor stored = source->shards()[i];
    std::vector<float>& target = stored.role == core::TensorRole::kParam ? model.weight : model.momentum;
    source->read(static_cast<int32_t>(i), {0}, stored.local_shape, reinterpret_cast<std::byte*>(target.data()));
  }
  return source->info().iteration;
}

// One step on random samples of a fixed linear function; returns the loss.
double step(Model& model, int64_t iteration) {
  const core::Rng rng(static_cast<uint64_t>(iteration), "samples");
  std::vector<double> gradient(kWidth);
  double loss = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    std::vector<double> x(kWidth);
    double error = 0;
    for (int i = 0; i < kWidth; ++i) {
      x[i] = rng.normal(static_cast<uint64_t>(sample * kWidth + i));
      error += x[i] * (static_cast<double>(model.weight[i]) - (i % 7 - 3));  // the true weights are i % 7 - 3
    }
    loss += error * error / kSamples;
    for (int i = 0; i < kWidth; ++i) gradient[i] += 2 * error * x[i] / kSamples;
  }
  for (int i = 0; i < kWidth; ++i) {
    model.momentum[i] = 0.5F * model.momentum[i] + static_cast<float>(gradient[i]);
    model.weight[i] -= 0.02F * model.momentum[i];
  }
  return loss;
}

int run(const std::filesystem::path& root, int64_t iterations) {
  core::Endpoint endpoint(std::make_unique<core::SingleTransport>(), {});
  core::Communicator world(endpoint, "world", {0}, 0);
  core::Arena arena;
  Model model;
  const int64_t first = load(root, model);
  std::printf(first == 0 ? "begins\n" : "continues from iteration %lld\n", static_cast<long long>(first));

  ckpt::Saver::Options options;
  options.root = root;
  options.arena = &arena;
  ckpt::Saver saver(world, options);
  for (int64_t iteration = first + 1; iteration <= iterations; ++iteration) {
    const double loss = step(model, iteration);
    if (iteration % kSaveInterval != 0) continue;
    ckpt::SaveRequest request;
    request.info.iteration = iteration;
    request.shards = {shard(core::TensorRole::kParam, model.weight), shard(core::TensorRole::kExpAvg, model.momentum)};
    saver.save(request);  // returns after a copy; the model may change at once
    std::printf("iteration %lld | loss %.6f\n", static_cast<long long>(iteration), loss);
  }
  saver.finish();  // throws what a save failed with
  std::printf("the newest checkpoint is %s\n", saver.last_path().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    return run(argv[1], std::atoll(argv[2]));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "train_loop: %s\n", e.what());
    return 1;
  }
}
