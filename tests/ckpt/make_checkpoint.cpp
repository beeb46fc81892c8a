// Writes a small checkpoint with known values, for command-line tests: make_checkpoint ROOT TP PP DP ZERO ITERATION
// [HIDDEN [QUERY_GROUPS]]. Prints its path.
#include <cstdio>
#include <cstdlib>

#include "core/layout/model_layout.h"
#include "tests/ckpt/state.h"

int main(int argc, char** argv) {
  using namespace ms::ckpt;
  if (argc < 7) return 2;
  const ms::layout::ModelLayout layout{std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]),
                                       std::atoi(argv[5]) != 0};
  auto config = test::small_model(127, false, argc > 7 ? std::atoi(argv[7]) : 24);
  if (argc > 8) config.num_query_groups = std::atoi(argv[8]);
  try {
    const auto path = test::write_checkpoint(argv[1], layout, config, test::mixed_roles(), std::atoi(argv[6]));
    std::printf("%s\n", path.c_str());
  } catch (const ms::core::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return ms::core::exit_code(e.code());
  }
  return 0;
}
