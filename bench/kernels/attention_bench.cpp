// Causal attention of one head, forward and backward, one thread. FLOPs: 4 s^2 d and 10 s^2 d, halved for causality
// (with heads of v that differ 2 s^2 (d + d_v) and s^2 (6 d + 4 d_v)):
// all products that are executed.
#include <cmath>

#include "bench/bench_support.h"
#include "kernels/attention.h"
#include "kernels/isa.h"
#include "tests/reference/attention.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

// d_v: of the heads of v and out.
void run(benchmark::State& state, bool backward, int64_t seq, int64_t d, int64_t d_v) {
  const AttentionShape shape{seq, seq, d, d, d, d, 0, d_v, d_v, d_v, d_v};
  test::RandomValues random;
  const auto n = seq * d, n_v = seq * d_v;
  const auto q = random.make(n), k = random.make(n), v = random.make(n_v), dout = random.make(n_v);
  std::vector<float> out(v.size()), dq(q.size()), dk(q.size()), dv(v.size()), lse(static_cast<size_t>(seq));
  std::vector<float> workspace(static_cast<size_t>(attention_backward_workspace(shape)));
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  const AttentionParams params{.scale = static_cast<float>(scale)};
  attention(shape, q.data(), k.data(), v.data(), params, out.data(), {lse.data()}, workspace.data());
  // The first 64 rows see no later key, so they equal the result of a shorter sequence.
  const auto head = [&](const std::vector<float>& x, int64_t width) {
    return reference::to_double(std::vector<float>(x.begin(), x.begin() + 64 * width));
  };
  const auto want = reference::attention(head(q, d), head(k, d), head(v, d_v), d, {scale});
  for (size_t i = 0; i < want.out.size(); ++i) {
    if (!(std::abs(out[i] - want.out[i]) < 1e-5)) {
      state.SkipWithError("wrong result");
      return;
    }
  }
  const double pairs = static_cast<double>(seq) * static_cast<double>(seq) / 2;
  const auto widths = static_cast<double>(backward ? 6 * d + 4 * d_v : 2 * (d + d_v));
  bench::report_flops_in_turns(state, pairs * widths, [&] {
    if (backward) {
      attention_backward(shape, 1, dout.data(), q.data(), k.data(), v.data(), out.data(), lse.data(), &params,
                         dq.data(), dk.data(), dv.data(), workspace.data());
    } else {
      attention(shape, q.data(), k.data(), v.data(), params, out.data(), {lse.data()}, workspace.data());
    }
  });
}

}  // namespace

void register_attention() {
  const auto model = bench::shapes("llama_124m");
  const int64_t hidden = model["hidden_size"], heads = model["num_attention_heads"], d = hidden / heads;
  const auto add = [](int64_t seq, int64_t width, int64_t value_width) {
    for (const bool backward : {false, true}) {
      const std::string name = "attention/" + std::string(isa_name(active_isa())) + "/seq:" + std::to_string(seq) +
                               "/d:" + std::to_string(width) +
                               (value_width == width ? "" : "/d_v:" + std::to_string(value_width)) +
                               (backward ? "/backward" : "/forward");
      benchmark::RegisterBenchmark(name.c_str(),
                                   [=](benchmark::State& state) { run(state, backward, seq, width, value_width); })
          ->Unit(benchmark::kMillisecond)
          ->UseManualTime();
    }
  };
  const int64_t of_model = model["seq_length"];
  for (const int64_t seq : {of_model / 4, of_model, int64_t{4096}, int64_t{16384}, int64_t{32768}}) add(seq, d, d);
  for (const int64_t wider : {80, 96, 128, 192, 256}) add(4096, wider, wider);
  add(4096, 192, 128);  // latent attention of DeepSeek
}

}  // namespace ms::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  ms::kernels::register_attention();
  benchmark::RunSpecifiedBenchmarks();
}
