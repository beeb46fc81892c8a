// What a save of so many bytes does, one thread's: copying them; both hashes of them (chunks and logical) one after the
// other by a call of XXH3 for each chunk and cell; all three in one pass, as the saver's snapshot does; writing them
// past the page cache with fsync, and removing the file, which is work too where the file system discards what it
// frees. bench/train/save_cost.py holds the trainer's saves against it.
//
//   bench.ckpt.ceiling FOLDER [BYTES]     1 GiB; prints JSON, seconds; medians of five
//   bench.ckpt.ceiling FOLDER BYTES PERIOD    writes them every PERIOD seconds until it is killed: what the
//                                             disk alone costs what computes beside it
//
// FOLDER decides which disk is measured; what is made in it is removed.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/ckpt/measure.h"
#include "bench/median.h"
#include "ckpt/logical_hash.h"
#include "core/error.h"
#include "core/io/aligned_buffer.h"
#include "core/io/bulk_writer.h"
#include "kernels/checksum.h"

namespace {

namespace fs = std::filesystem;
using namespace ms;

constexpr int64_t kCellBytes = ckpt::kLogicalCell * 4;  // of fp32

void write(const fs::path& path, core::WritePath how, const core::AlignedBuffer& bytes) {
  const core::File file = core::File::create(path.string());
  file.preallocate(static_cast<int64_t>(bytes.size_bytes()));
  core::BulkWriter writer(file, how);
  core::BulkWriter::Batch batch(writer);
  writer.submit({bytes.data(), bytes.size_bytes()}, 0, batch);
  writer.wait(batch);
  file.fsync();
}

core::WritePath path_for(const fs::path& file) { return core::choose_write_path(file.parent_path().string()).path; }

[[noreturn]] void keep_writing(const fs::path& file, int64_t bytes, double period_s) {
  const core::AlignedBuffer from(static_cast<size_t>(bytes));
  bench::NormalWeights().fill(from.data(), bytes, 4, 1);
  const core::WritePath how = path_for(file);
  const std::chrono::duration<double> period(period_s);
  for (auto next = std::chrono::steady_clock::now();;) {
    write(file, how, from);
    fs::remove(file);
    next += std::chrono::duration_cast<std::chrono::steady_clock::duration>(period);
    std::this_thread::sleep_until(next);
  }
}

int run(const fs::path& file_path, int64_t bytes) {
  const core::AlignedBuffer from(static_cast<size_t>(bytes)), to(static_cast<size_t>(bytes));
  bench::NormalWeights().fill(from.data(), bytes, 4, 1);
  std::memset(to.data(), 1, to.size_bytes());
  const core::ShardedTensor tensor{"w", core::TensorRole::kParam, core::DType::kFp32, {bytes / 4}, {0}, {bytes / 4}, 0};
  const core::WritePath path = path_for(file_path);
  std::vector<double> copy_s, hash_s, one_pass_s, write_s, remove_s;
  uint64_t hash = 0, cells = 0;
  for (int round = 0; round < 5; ++round) {
    copy_s.push_back(bench::seconds([&] { std::memcpy(to.data(), from.data(), from.size_bytes()); }));
    hash_s.push_back(bench::seconds([&] {
      for (int64_t at = 0; at < bytes; at += ckpt::kChunkBytes) {
        const int64_t size = std::min(ckpt::kChunkBytes, bytes - at);
        hash += kernels::xxh3(to.data() + at, static_cast<size_t>(size));
        for (int64_t cell = at; cell < at + size; cell += kCellBytes) {
          cells += kernels::xxh3(to.data() + cell, static_cast<size_t>(std::min(kCellBytes, at + size - cell)));
        }
      }
    }));
    one_pass_s.push_back(bench::seconds([&] {
      ckpt::LogicalPartial partial;
      for (int64_t at = 0; at < bytes; at += ckpt::kChunkBytes) {
        const int64_t size = std::min(ckpt::kChunkBytes, bytes - at);
        hash += ckpt::copy_and_hash_chunk(tensor, at / 4, size / 4, from.data() + at, to.data() + at, partial);
      }
      hash += partial.sum;
    }));
    write_s.push_back(bench::seconds([&] { write(file_path, path, to); }));
    remove_s.push_back(bench::seconds([&] { fs::remove(file_path); }));
  }
  const nlohmann::json result = {{"bytes", bytes},
                                 {"copy_s", bench::median(copy_s)},
                                 {"hash_s", bench::median(hash_s)},
                                 {"one_pass_s", bench::median(one_pass_s)},
                                 {"write_s", bench::median(write_s)},
                                 {"remove_s", bench::median(remove_s)},
                                 {"write_path", core::write_path_name(path)},
                                 {"hash", hash + cells}};
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return ms::bench::in_folder(argc, argv, "bench.ckpt.ceiling FOLDER [BYTES [PERIOD]]", [&](const fs::path& folder) {
    const int64_t bytes = (argc > 2 ? std::atoll(argv[2]) : int64_t{1} << 30) / 4096 * 4096;
    if (argc > 3) keep_writing(folder / "raw", bytes, std::atof(argv[3]));
    return run(folder / "raw", bytes);
  });
}
