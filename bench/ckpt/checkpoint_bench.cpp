// What a checkpoint costs, in ratios of the same run: the blocking part of a save against memcpy of the same bytes, the
// whole save, plain (from the caller's memory, and with the snapshot) and compressed, against a raw write + fsync of
// them by the same way (io_uring where it works), verify against reading, and reshard against cp + sync. The state is
// of normal weights, as compression wants to see them.
//
//   bench.ckpt.checkpoint FOLDER [HIDDEN [LAYERS [THREADS]]]     about 2 GB with the defaults; prints JSON
//
// Medians of five. FOLDER decides which disk is measured; what is made in it is removed.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/ckpt/measure.h"
#include "bench/ckpt/trained_model.h"
#include "bench/median.h"
#include "ckpt/commit.h"
#include "ckpt/execute.h"
#include "ckpt/native_sink.h"
#include "ckpt/reader.h"
#include "ckpt/reshard.h"
#include "ckpt/shard_list.h"
#include "ckpt/verify.h"
#include "ckpt/writer.h"
#include "core/error.h"
#include "core/io/bulk_writer.h"
#include "core/layout/model_layout.h"
#include "core/thread_pool.h"

namespace {

namespace fs = std::filesystem;
using namespace ms;
using bench::median;
using bench::seconds;

// A world of one needs no messages.
class NoTransport final : public core::Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<core::TransferRequest> isend(const void*, int64_t, int, int32_t) override { std::abort(); }
  std::unique_ptr<core::TransferRequest> irecv(void*, int64_t, int, int32_t) override { std::abort(); }
};

core::TransformerConfig model(int64_t hidden, int64_t layers) {
  core::TransformerConfig config = bench::llama_config(hidden, 8, 31123);
  config.num_layers = layers;
  config.resolve(1024);
  return config;
}

int run(const fs::path& folder, int64_t hidden, int64_t layers, int threads) {
  const auto config = model(hidden, layers);
  const std::vector<ckpt::RoleSpec> roles = bench::trained_roles();
  core::ThreadPool pool(threads);
  nlohmann::json result;
  int64_t bytes = 0;
  {
    core::Arena arena;
    std::vector<core::Buffer> memory;
    ckpt::SaveRequest request;
    request.info.model = config;
    request.info.layout = layout::layout_to_json({});
    const bench::NormalWeights weights;
    for (const auto& meta : ckpt::shards_of_rank({}, config, 0, roles)) {
      const int64_t size = core::num_elements(meta.local_shape) * core::size_of(meta.dtype);
      memory.push_back(arena.allocate(size, core::MemoryTag::kParam));
      weights.fill(memory.back().data(), size, core::size_of(meta.dtype), memory.size());
      request.shards.push_back({meta, memory.back().data()});
      bytes += size;
    }
    core::Buffer copy = arena.allocate(bytes, core::MemoryTag::kTmp);
    std::memset(copy.data(), 1, static_cast<size_t>(bytes));
    core::Endpoint endpoint(std::make_unique<NoTransport>(), {});
    core::Communicator comm(endpoint, "ckpt", {0}, 1);
    ckpt::Saver::Options options;
    options.root = folder / "a";
    options.arena = &arena;
    options.pool = &pool;
    ckpt::Saver saver(comm, options);
    saver.reserve(request.shards);
    options.root = folder / "at_once";
    options.async = false;
    ckpt::Saver at_once(comm, options);
    options.async = true;
    options.root = folder / "compressed";
    options.compress = true;
    options.compress_threads = threads;
    ckpt::Saver compressing(comm, options);
    compressing.reserve(request.shards);
    const core::WritePath path = core::choose_write_path(folder.string()).path;
    std::vector<double> memcpy_s, blocking_s, save_s, at_once_s, write_s, compressed_s;
    int64_t compressed_bytes = 0;
    for (int round = 0; round < 5; ++round) {
      memcpy_s.push_back(seconds([&] {
        std::byte* to = copy.data();
        for (const auto& buffer : memory) {
          pool.parallel_for(buffer.size_bytes(), 1 << 20, [&](int64_t begin, int64_t end) {
            std::memcpy(to + begin, buffer.data() + begin, static_cast<size_t>(end - begin));
          });
          to += buffer.size_bytes();
        }
      }));
      write_s.push_back(seconds([&] {
        const core::File file = core::File::create((folder / "raw").string());
        file.preallocate(bytes);
        core::BulkWriter writer(file, path);
        core::BulkWriter::Batch batch(writer);
        writer.submit({copy.data(), static_cast<size_t>(bytes)}, 0, batch);
        writer.wait(batch);
        file.fsync();
      }));
      fs::remove(folder / "raw");
      request.info.iteration = round + 1;
      at_once_s.push_back(seconds([&] { at_once.save(request); }));
      fs::remove_all(at_once.last_path());
      save_s.push_back(seconds([&] {
        saver.save(request);
        saver.finish();
      }));
      blocking_s.push_back(saver.last_blocking_seconds());
      if (round < 4) fs::remove_all(saver.last_path());
      compressed_s.push_back(seconds([&] {
        compressing.save(request);
        compressing.finish();
      }));
      compressed_bytes = static_cast<int64_t>(fs::file_size(compressing.last_path() / "rank_00000.h5"));
      fs::remove_all(compressing.last_path());
    }
    result["bytes"] = bytes;
    result["memcpy_s"] = median(memcpy_s);
    result["save_blocking_s"] = median(blocking_s);
    result["save_blocking_over_memcpy"] = median(blocking_s) / median(memcpy_s);
    result["write_fsync_s"] = median(write_s);
    result["save_s"] = median(at_once_s);
    result["save_with_snapshot_s"] = median(save_s);
    result["write_path"] = core::write_path_name(path);
    result["save_speed_over_raw_write"] = median(write_s) / median(at_once_s);
    result["save_with_snapshot_speed_over_raw_write"] = median(write_s) / median(save_s);
    result["compressed_save_s"] = median(compressed_s);
    result["compressed_save_speed_over_raw_write"] = median(write_s) / median(compressed_s);
    result["compression_ratio"] = static_cast<double>(bytes) / static_cast<double>(compressed_bytes);
  }
  const fs::path source = ckpt::find_latest(folder / "a")->generation.path;
  std::vector<double> cp_s, reshard_s, verify_s;
  int64_t peak = 0;
  for (int round = 0; round < 5; ++round) {
    bench::drop_page_cache(source);
    cp_s.push_back(seconds([&] { bench::copy_and_sync(source, folder / "copy"); }));
    fs::remove_all(folder / "copy");
    bench::drop_page_cache(source);
    reshard_s.push_back(seconds([&] {
      peak = bench::in_child(folder, [&] {
        const auto reader = ckpt::open_native(source);
        const auto plan = ckpt::plan_reshard(*reader, {4, 2, 1, 0}, {});
        ckpt::NativeSinkOptions sink_options;
        sink_options.root = folder / "b";
        sink_options.rank_of_target = plan.targets.ranks;
        sink_options.num_ranks = 8;
        const auto sink = ckpt::make_native_sink(std::move(sink_options));
        ckpt::ExecuteOptions execute_options;
        execute_options.threads = threads;
        ckpt::execute(*reader, *sink, plan.info, plan.targets.shards, execute_options);
      });
    }));
    fs::remove_all(folder / "b");
    bench::drop_page_cache(source);
    verify_s.push_back(seconds([&] {
      ckpt::VerifyOptions options;
      options.threads = threads;
      if (!ckpt::verify_generation(source, options).findings.empty()) std::abort();
    }));
  }
  result["cp_sync_s"] = median(cp_s);
  result["reshard_s"] = median(reshard_s);
  result["reshard_speed_over_cp"] = median(cp_s) / median(reshard_s);
  result["verify_s"] = median(verify_s);
  result["verify_GB_per_s"] = static_cast<double>(bytes) / 1e9 / median(verify_s);
  result["reshard_peak_rss_kib"] = peak;
  std::printf("%s\n", result.dump(2).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return ms::bench::in_folder(argc, argv, "bench.ckpt.checkpoint FOLDER [HIDDEN [LAYERS [THREADS]]]",
                              [&](const fs::path& folder) {
                                return run(folder, argc > 2 ? std::atoi(argv[2]) : 1024,
                                           argc > 3 ? std::atoi(argv[3]) : 6, argc > 4 ? std::atoi(argv[4]) : 2);
                              });
}
