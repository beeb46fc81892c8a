// train/mask_grid_file.h: the file of --attention-mask-grid.
#include "tests/fuzz/reader.h"
#include "train/mask_grid_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ms;
  fuzz::read_or_refuse([&] {
    const train::MaskGridFile grid = train::parse_mask_grid(fuzz::text_of(data, size), "fuzz");
    fuzz::require(grid.cells > 0 && grid.visible.size() == static_cast<size_t>(grid.cells * grid.cells),
                  "a grid has a cell for each digit");
    const std::string path = fuzz::folder() / "grid.txt";
    test::write_file(path, std::string(fuzz::text_of(data, size)));
    for (const bool is_causal : {true, false}) {
      const layout::MaskGrid read = train::read_mask_grid(path, 3 * grid.cells, is_causal);
      fuzz::require(!read.blind_query(), "each position sees a key");
    }
  });
  return 0;
}
