#include "train/mask_grid_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/mask_grids.h"
#include "tests/support/temporary_folder.h"

namespace ms::train {
namespace {

using core::ErrorCode;

struct Refused {
  const char* name;
  std::string text;
  const char* error;
};

TEST(MaskGridFile, ReadsWhatNumpyWrites) {
  for (const char* text : {"10\n11\n", "1 0\n1 1\n", "# queries x keys\n1\t0\r\n\n  1 1", "1 0 \n1 1\n\n# end\n",
                           "  # a\r\n10\r\n\t#b\r\n11\r\n", "10\n11\r"}) {
    const MaskGridFile grid = parse_mask_grid(text, "grid.txt");
    EXPECT_EQ(grid.cells, 2) << text;
    EXPECT_EQ(grid.visible, (std::vector<uint8_t>{1, 0, 1, 1})) << text;
  }
}

TEST(MaskGridFile, SaysWhatIsWrong) {
  const std::string wide(1025, '1');
  const Refused cases[] = {
      {"empty", "", "grid.txt: no row of digits, expected as many rows as columns"},
      {"comments alone", "# 10\n # 11\n", "no row of digits"},
      {"a row is missing", "101\n111\n", "grid.txt: 2 rows of 3 cells, expected as many rows as columns"},
      {"one row", "10\n", "grid.txt: 1 row of 2 cells, expected as many rows as columns"},
      {"a row too many", "10\n11\n11\n", "grid.txt: line 3: a row more than the 2 that a grid of as many columns has"},
      {"a short row", "# a comment\n10\n1\n", "grid.txt: line 3: 1 cell, expected 2 as in the first row"},
      {"a long row", "10\n110\n", "grid.txt: line 2: 3 cells, expected 2 as in the first row"},
      {"old Mac", "10\r11\r",
       "grid.txt: line 1, column 3: a carriage return, and no line feed behind it: lines end with LF or CRLF"},
      {"old Mac, behind a comment", "# a\r10\r11\r", "grid.txt: line 1, column 4: a carriage return"},
      {"a comment behind digits", "10 # a\n11\n", "grid.txt: line 1, column 4: '#', expected 1 (visible) or 0"},
      {"another digit", "10\n1 2\n", "grid.txt: line 2, column 3: '2', expected 1 (visible) or 0"},
      {"floats", "1.0 0.0\n1.0 1.0\n",
       "line 1, column 2: '.', expected 1 (visible) or 0, as numpy.savetxt writes with fmt=\"%d\""},
      {"a byte", std::string("1\0\n", 3), "line 1, column 2: byte 0, expected"},
      {"true and false", "[[true, false]]", "line 1, column 1: '[', expected"},
      {"too many cells", wide, "line 1: more than 1024 cells, the most that a grid has"},
  };
  for (const Refused& of : cases) {
    try {
      parse_mask_grid(of.text, "grid.txt");
      ADD_FAILURE() << of.name;
    } catch (const core::Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kCorruptData);
      EXPECT_NE(std::string(e.what()).find(of.error), std::string::npos) << of.name << ": " << e.what();
    }
  }
}

TEST(MaskGridFile, IsOfASampleInWhichEachPositionSeesAKey) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() / "grid.txt";
  test::write_file(path, test::grid_text(6, test::block_cells(2)));
  const layout::MaskGrid grid = read_mask_grid(path, 48, /*is_causal=*/true);
  EXPECT_EQ(grid.cells(), 6);
  EXPECT_TRUE(grid.sees(8, 7) && grid.sees(15, 15) && !grid.sees(16, 15) && !grid.sees(7, 8));
  EXPECT_TRUE(read_mask_grid(path, 48, /*is_causal=*/false).sees(7, 8));

  const auto error_of = [&](int64_t seq_length, bool is_causal, ErrorCode code) -> std::string {
    try {
      read_mask_grid(path, seq_length, is_causal);
    } catch (const core::Error& e) {
      EXPECT_EQ(e.code(), code);
      return e.what();
    }
    return "";
  };
  EXPECT_NE(
      error_of(50, true, ErrorCode::kInvalidArgument).find("6 x 6 cells, but --seq-length 50 is not a multiple of 6"),
      std::string::npos);
  test::write_file(path, "100\n001\n111\n");
  EXPECT_NE(error_of(48, true, ErrorCode::kCorruptData)
                .find("row 2 of 3 shows no key up to its own cell: its queries, from position 16 on, would attend to "
                      "nothing; set its cell 2 to 1"),
            std::string::npos);
  EXPECT_EQ(error_of(48, false, ErrorCode::kCorruptData), "") << "they see the keys behind them";
  test::write_file(path, "100\n000\n111\n");
  EXPECT_NE(error_of(48, false, ErrorCode::kCorruptData).find("row 2 of 3 shows no key: its queries"),
            std::string::npos);
  test::write_file(path, std::string((4 << 20) + 1, '#'));
  EXPECT_NE(error_of(48, true, ErrorCode::kCorruptData)
                .find("grid.txt has 4194305 bytes; expected at most 4194304, 4 for each of 1024 x 1024 cells"),
            std::string::npos);
  std::filesystem::remove(path);
  EXPECT_NE(error_of(48, true, ErrorCode::kNotFound), "");
  std::filesystem::create_directory(path);
  EXPECT_NE(error_of(48, true, ErrorCode::kInvalidArgument).find("grid.txt: it is a folder, not a regular file"),
            std::string::npos);
}

// As many cells as there may be take what the file has, not what a sample has.
TEST(MaskGridFile, HasNothingOfTheSizeOfASample) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() / "grid.txt";
  test::write_file(path, test::grid_text(1024, test::random_cells(1024, 50, 1)));
  const layout::MaskGrid grid = read_mask_grid(path, int64_t{1} << 30, /*is_causal=*/true);
  EXPECT_LE(grid.whole().runs.size(), size_t{1024 * 1024 / 2});
  EXPECT_LE(grid.whole().spans.size(), 1024U);
}

}  // namespace
}  // namespace ms::train
