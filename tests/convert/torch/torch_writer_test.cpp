// Our archives, as our reader parses them.
#include "convert/torch/torch_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "convert/torch/torch_file.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

std::string random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

// Two storages; two tensors view the first.
std::string two_storages() {
  return make_pickle([](PickleWriter& p) {
    p.dict([&] {
      p.text("whole");
      write_torch_tensor(p,
                         {.dtype = SafetensorsDType::kBF16, .storage = 0, .storage_elements = 600, .shape = {20, 30}});
      p.text("part");
      write_torch_tensor(
          p,
          {.dtype = SafetensorsDType::kBF16, .storage = 0, .storage_elements = 600, .first = 120, .shape = {4, 5, 6}});
      p.text("bytes");
      write_torch_tensor(p, {.dtype = SafetensorsDType::kF8E4M3, .storage = 1, .storage_elements = 77, .shape = {77}});
    });
  });
}

std::string read(const TorchFile& file, const char* name) {
  const auto tensor = file.tensor(*file.root().find(name));
  std::string bytes(tensor->size_bytes(), '\0');
  file.read(*tensor, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST(TorchWriterTest, TensorsReadBack) {
  const test::TemporaryFolder folder;
  const std::string storages[] = {random_bytes(1200, 1), random_bytes(77, 2)};
  const std::string path = folder / "file.pt";
  test::write_file(path, make_torch_archive(two_storages(), storages));
  const TorchFile file(path);
  EXPECT_EQ(read(file, "whole"), storages[0]);
  EXPECT_EQ(read(file, "part"), storages[0].substr(240, 240));
  EXPECT_EQ(read(file, "bytes"), storages[1]);
  EXPECT_EQ(file.tensor(*file.root().find("bytes"))->dtype, SafetensorsDType::kF8E4M3);
}

TEST(TorchWriterTest, WriteOrderAndThreadsDoNotChangeBytes) {
  const test::TemporaryFolder folder;
  const std::string storages[] = {random_bytes(1200, 1), random_bytes(77, 2)};
  const int64_t sizes[] = {1200, 77};
  TorchWriter writer(two_storages(), sizes);
  const core::File file = core::File::create(folder / "payload");
  constexpr int64_t kBefore = 1000;  // in a larger file
  const TorchWriter::Output output = [&](std::span<const std::byte> bytes, int64_t at) {
    file.pwrite(bytes, kBefore + at);
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t at = 30 * (39 - t); at >= 0; at -= 120) {
        writer.write(output, 0, at, std::as_bytes(std::span(storages[0])).subspan(static_cast<size_t>(at), 30));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  writer.write(output, 1, 0, std::as_bytes(std::span(storages[1])));
  writer.finish(output);
  EXPECT_EQ(test::read_file(folder / "payload").substr(kBefore), make_torch_archive(two_storages(), storages));
  EXPECT_EQ(file.size_bytes(), kBefore + writer.size_bytes());
}

TEST(TorchWriterTest, UnwrittenBytesAreZero) {
  const test::TemporaryFolder folder;
  const int64_t sizes[] = {1200, 77};
  TorchWriter writer(two_storages(), sizes);
  {
    const core::File file = core::File::create(folder / "file.pt");
    const TorchWriter::Output output = [&](std::span<const std::byte> bytes, int64_t at) { file.pwrite(bytes, at); };
    writer.write(output, 0, 600, std::as_bytes(std::span("x", 1)));
    writer.finish(output);
  }
  std::string wanted(1200, '\0');
  wanted[600] = 'x';
  const TorchFile file(folder / "file.pt");
  EXPECT_EQ(read(file, "whole"), wanted);
  EXPECT_EQ(read(file, "bytes"), std::string(77, '\0'));
}

TEST(TorchWriterTest, FlippedBitIsFound) {
  const test::TemporaryFolder folder;
  const std::string storages[] = {random_bytes(1200, 1), random_bytes(77, 2)};
  std::string archive = make_torch_archive(two_storages(), storages);
  archive[archive.find(storages[0]) + 700] ^= 1;
  test::write_file(folder / "file.pt", archive);
  const TorchFile file(folder / "file.pt");
  EXPECT_EQ(test::code_of([&] { read(file, "part"); }), core::ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace ms::convert
