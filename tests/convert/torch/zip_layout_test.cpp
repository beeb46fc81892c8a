// Positions of records, and what only a large archive needs.
#include "convert/torch/zip_layout.h"

#include <gtest/gtest.h>

#include "convert/torch/crc32.h"
#include "convert/torch/zip_reader.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace ms::convert {
namespace {

// Writes the archive as a file with holes (zeros) for its data.
ZipReader write_zeros(const ZipLayout& layout, const std::string& path) {
  const core::File file = core::File::create(path);
  const auto put = [&](const std::string& text, int64_t at) { file.pwrite(std::as_bytes(std::span(text)), at); };
  std::vector<uint32_t> crcs;
  for (size_t r = 0; r < layout.records().size(); ++r) {
    crcs.push_back(Crc32OfParts(layout.records()[r].bytes).value());
    put(layout.header(r, crcs.back()), layout.records()[r].header_at);
  }
  put(layout.directory(crcs), layout.directory_at());
  EXPECT_EQ(file.size_bytes(), layout.archive_bytes());
  return ZipReader(ArchiveRange::whole(path));
}

void expect_same(const ZipLayout& layout, const ZipReader& reader) {
  ASSERT_EQ(reader.entries().size(), layout.records().size());
  for (size_t r = 0; r < layout.records().size(); ++r) {
    const ZipLayout::Record& record = layout.records()[r];
    EXPECT_EQ(reader.entries()[r].name, record.name);
    EXPECT_EQ(reader.entries()[r].at, record.at);
    EXPECT_EQ(reader.entries()[r].bytes, record.bytes);
    EXPECT_EQ(reader.entries()[r].crc32, Crc32OfParts(record.bytes).value());
    EXPECT_EQ(record.at % (record.bytes < 65536 ? 64 : 4096), 0);
    EXPECT_EQ(static_cast<int64_t>(layout.header(r, 0).size()), record.at - record.header_at);
  }
}

TEST(ZipLayoutTest, DataIsAlignedTo64BytesForAnyName) {
  const test::TemporaryFolder folder;
  ZipLayout layout;
  layout.add("a/large", 65536);
  layout.add("a/not quite", 65535);
  for (int i = 0; i < 130; ++i) layout.add("a/" + std::string(static_cast<size_t>(i) + 1, 'n'), i % 67);
  expect_same(layout, write_zeros(layout, folder / "zip"));
  const std::string all = test::read_file(folder / "zip");
  EXPECT_EQ(all.find("PK\6\6"), std::string::npos) << "no ZIP64 where it is not needed";
}

TEST(ZipLayoutTest, RecordsBeyond4GiBUseZip64) {
  const test::TemporaryFolder folder;
  for (const int64_t large : {int64_t{UINT32_MAX} - 1, int64_t{UINT32_MAX}, int64_t{5} << 30}) {
    ZipLayout layout;
    layout.add("a/small", 100);
    layout.add("a/large", large);
    layout.add("a/behind it", 100);
    expect_same(layout, write_zeros(layout, folder / "zip"));
  }
}

TEST(ZipLayoutTest, MoreThan65535RecordsUseZip64) {
  const test::TemporaryFolder folder;
  ZipLayout layout;
  for (int i = 0; i < 65535; ++i) layout.add(core::cat("a/", i), 1);
  expect_same(layout, write_zeros(layout, folder / "zip"));
}

}  // namespace
}  // namespace ms::convert
