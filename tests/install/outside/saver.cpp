// Saves one tensor as a committed checkpoint of its own, without stopping: save() returns after a copy.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "ckpt/writer.h"
#include "core/comm/single_transport.h"

int main() {
  using namespace ms;
  core::Endpoint endpoint(std::make_unique<core::SingleTransport>(), {});
  core::Communicator world(endpoint, "world", {0}, 0);
  core::Arena arena;

  std::vector<float> values(1000, 1.5f);
  core::ShardedTensor tensor;
  tensor.key = "decoder.final_layernorm.weight";
  tensor.global_shape = tensor.local_shape = {1000};
  tensor.global_offset = {0};

  ckpt::SaveRequest request;
  request.info.iteration = 7;
  request.shards = {{tensor, reinterpret_cast<const std::byte*>(values.data())}};
  ckpt::Saver::Options options;
  options.root = "outside_checkpoints";
  options.arena = &arena;
  ckpt::Saver saver(world, options);
  saver.save(request);
  values.assign(values.size(), 0);  // the saver has its own copy
  saver.finish();

  std::printf("saver: iteration %lld is at %s\n", static_cast<long long>(saver.last_committed()),
              saver.last_path().c_str());
  return saver.last_committed() == 7 && std::filesystem::exists(saver.last_path() / "manifest.json") ? 0 : 1;
}
