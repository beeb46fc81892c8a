// make_trace FOLDER: writes traces of two ranks and three steps with known times in whole microseconds, for scripts
// that run msprof or other tools on them. Prints the paths.
//
// Each step takes 1000 us: computation 100..300 and 500..700, an allreduce 250..400, a copy 720..740. So in each step a
// rank computes 400, communicates 150 of which 100 are exposed, and copies 20, all exposed.
#include <cstdio>

#include "tests/support/trace_maker.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  constexpr int64_t kUs = 1000;
  for (const int rank : {0, 1}) {
    ms::test::TraceMaker maker(argv[1], rank, 2);
    const int64_t skew = rank * 40 * kUs;  // rank 1's clock is 40 us ahead
    maker.clock(skew, skew, 500);
    uint32_t correlation = 1;
    for (int64_t step = 0; step < 3; ++step) {
      const int64_t t = skew + step * 1000 * kUs;
      maker.host(ms::core::cat("ProfilerStep#", 10 + step), t, t + 1000 * kUs);
      maker.host("data", t + 10 * kUs, t + 60 * kUs);
      for (const int64_t start : {100, 500}) {
        maker.op("linear", t + (start - 10) * kUs, t + (start + 210) * kUs, "[[4, 8], [8, 8]]", "[\"bf16\", \"bf16\"]");
        maker.launch(correlation, t + (start - 2) * kUs, t + (start - 1) * kUs);
        maker.kernel("gemm_bf16", t + start * kUs, t + (start + 200) * kUs, correlation++, 1'000'000, 4096);
      }
      maker.comm("allreduce", "dp", {0, 1}, t + 250 * kUs, t + 400 * kUs, 4096);
      maker.copy("Memcpy DtoH (Device -> Pinned)", t + 720 * kUs, t + 740 * kUs, 1 << 20);
      maker.memory(t + 90 * kUs, 0x1000, 4096, 4096);
      maker.memory(t + 950 * kUs, 0x1000, -4096, 0);
      maker.counter("ckpt_queue", t + 500 * kUs, static_cast<double>(step));
    }
    std::puts(maker.finish().c_str());
  }
  return 0;
}
