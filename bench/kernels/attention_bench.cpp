// Causal attention of one head, forward and backward, one thread. FLOPs: 4 s^2 d and 10 s^2 d, halved for causality:
// all products that are executed.
#include <cmath>

#include "bench/bench_support.h"
#include "kernels/attention.h"
#include "kernels/isa.h"
#include "tests/reference/attention.h"
#include "tests/support/random_values.h"

namespace ms::kernels {
namespace {

void run(benchmark::State& state, bool backward, int64_t seq, int64_t d) {
  const AttentionShape shape{seq, seq, d, d, d, d};
  test::RandomValues random;
  const auto n = seq * d;
  const auto q = random.make(n), k = random.make(n), v = random.make(n), dout = random.make(n);
  std::vector<float> out(q.size()), dq(q.size()), dk(q.size()), dv(q.size()), lse(static_cast<size_t>(seq));
  std::vector<float> workspace(static_cast<size_t>(attention_backward_workspace(shape)));
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  const AttentionParams params{.scale = static_cast<float>(scale)};
  attention(shape, q.data(), k.data(), v.data(), params, out.data(), {lse.data()}, workspace.data());
  // The first 64 rows see no later key, so they equal the result of a shorter sequence.
  const auto head = [&](const std::vector<float>& x) {
    return reference::to_double(std::vector<float>(x.begin(), x.begin() + 64 * d));
  };
  const auto want = reference::attention(head(q), head(k), head(v), d, {scale});
  for (size_t i = 0; i < want.out.size(); ++i) {
    if (!(std::abs(out[i] - want.out[i]) < 1e-5)) {
      state.SkipWithError("wrong result");
      return;
    }
  }
  for (auto _ : state) {
    if (backward) {
      attention_backward(shape, 1, dout.data(), q.data(), k.data(), v.data(), out.data(), lse.data(), &params,
                         dq.data(), dk.data(), dv.data(), workspace.data());
    } else {
      attention(shape, q.data(), k.data(), v.data(), params, out.data(), {lse.data()}, workspace.data());
    }
  }
  const double pairs = static_cast<double>(seq) * static_cast<double>(seq) / 2;
  bench::report_flops(state, (backward ? 10 : 4) * pairs * static_cast<double>(d));
}

}  // namespace

void register_attention() {
  const auto model = bench::shapes("llama_124m");
  const int64_t hidden = model["hidden_size"], heads = model["num_attention_heads"], d = hidden / heads;
  const auto add = [](int64_t seq, int64_t width) {
    for (const bool backward : {false, true}) {
      const std::string name = "attention/" + std::string(isa_name(active_isa())) + "/seq:" + std::to_string(seq) +
                               "/d:" + std::to_string(width) + (backward ? "/backward" : "/forward");
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
        run(state, backward, seq, width);
      })->Unit(benchmark::kMillisecond);
    }
  };
  const int64_t of_model = model["seq_length"];
  for (const int64_t seq : {of_model / 4, of_model, int64_t{4096}, int64_t{16384}, int64_t{32768}}) add(seq, d);
  for (const int64_t wider : {80, 128}) add(4096, wider);
}

}  // namespace ms::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  ms::kernels::register_attention();
  benchmark::RunSpecifiedBenchmarks();
}
