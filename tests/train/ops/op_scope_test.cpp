#include "train/ops/detail/op_scope.h"

#include <zstd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "core/trace/format.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/ops/ops_fixture.h"
#include "train/ops/elementwise.h"

namespace ms::ops {
namespace {

// The uncompressed payloads of a native trace, concatenated; sufficient to search for strings.
std::string payloads(const std::filesystem::path& path) {
  const std::string bytes = test::read_file(path);
  std::string result;
  size_t at = core::trace::kFileMagic.size();
  while (at + core::trace::kChunkPrefixBytes + core::trace::kBodyHeaderBytes <= bytes.size()) {
    uint32_t body_bytes = 0;
    std::memcpy(&body_bytes, bytes.data() + at + 4, 4);
    at += core::trace::kChunkPrefixBytes;
    std::string raw(core::trace::kMaxChunkBytes, '\0');
    const size_t size = ZSTD_decompress(raw.data(), raw.size(), bytes.data() + at + core::trace::kBodyHeaderBytes,
                                        body_bytes - core::trace::kBodyHeaderBytes);
    if (ZSTD_isError(size) == 0) result.append(raw, 0, size);
    at += body_bytes;
  }
  return result;
}

std::string record(bool with_cpu, bool record_shapes) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "ms_op_scope_test";
  std::filesystem::create_directories(folder);
  core::trace::Recorder recorder;
  core::trace::Options options;
  options.level = core::trace::Level::kLevel1;
  options.with_cpu = with_cpu;
  options.record_shapes = record_shapes;
  options.save_path = folder.string();
  recorder.start(options);
  Ops ops;
  ops.context.recorder = &recorder;
  add(ops.context, ops.random<float>({3, 5}, 1), ops.random<float>({3, 5}, 2));
  recorder.stop();
  std::string text = payloads(folder / "rank_00000.mstrace");
  std::filesystem::remove_all(folder);
  return text;
}

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

TEST(OpScope, RecordsKernelsAlwaysAndOperatorsOnDemand) {
  const std::string kernels_only = record(false, false);
  EXPECT_EQ(count(kernels_only, "ms::add"), 0u);
  EXPECT_EQ(count(kernels_only, "add"), 1u);
  const std::string with_operators = record(true, false);
  EXPECT_EQ(count(with_operators, "ms::add"), 1u);
  EXPECT_GT(count(with_operators, "add"), 1u);
  EXPECT_EQ(count(with_operators, "fp32"), 0u);
  EXPECT_GT(count(record(true, true), "fp32"), 0u);
}

TEST(OpScope, InactiveRecorderRecordsNothing) {
  core::trace::Recorder recorder;
  Ops ops;
  ops.context.recorder = &recorder;
  add(ops.context, ops.random<float>({3}, 1), ops.random<float>({3}, 2));
  EXPECT_FALSE(recorder.active());
}

}  // namespace
}  // namespace ms::ops
