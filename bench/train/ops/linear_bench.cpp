// ops::linear and its gradients over the pool: linear/<pass>/<layer>/threads:<n>, in real time.
#include <cmath>

#include "bench/bench_support.h"
#include "bench/train/ops/random_tensor.h"
#include "core/tensor.h"
#include "train/ops/linear.h"

namespace ms::ops {
namespace {

void run(benchmark::State& state, const std::string& pass, int threads, int64_t tokens, int64_t out, int64_t in) {
  core::ThreadPool pool(threads);
  core::Arena arena;
  Context context{pool, arena};
  const auto x = random_tensor(arena, {tokens, in}), weight = random_tensor(arena, {out, in});
  const auto dy = random_tensor(arena, {tokens, out});
  const auto main_grad = core::Tensor::zeros(arena, core::DType::kFp32, {out, in}, core::MemoryTag::kGrad);
  {  // its memory is reused by the timed calls, as in a training step after the first
    const auto y = linear(context, x, weight);
    double want = 0;
    for (int64_t i = 0; i < in; ++i) want += static_cast<double>(x.data<float>()[i]) * weight.data<float>()[i];
    if (!(std::abs(y.data<float>()[0] - want) < 1e-4)) {
      state.SkipWithError("wrong result");
      return;
    }
    linear_dgrad(context, dy, weight);
  }
  for (auto _ : state) {
    if (pass == "fwd") linear(context, x, weight);
    if (pass == "dgrad") linear_dgrad(context, dy, weight);
    if (pass == "wgrad") linear_wgrad(context, x, dy, main_grad);
  }
  bench::report_flops(state, 2.0 * static_cast<double>(tokens) * static_cast<double>(out) * static_cast<double>(in),
                      threads);
}

}  // namespace

void register_linear(const std::string& shapes) {
  const auto model = bench::shapes(shapes);
  const int64_t tokens = model["tokens"];
  for (const auto& layer : model["linear"]) {
    for (const char* pass : {"fwd", "dgrad", "wgrad"}) {
      for (const int threads : {1, 2}) {
        const int64_t out = layer["out"], in = layer["in"];
        const std::string name = "linear/" + std::string(pass) + "/" + layer["name"].get<std::string>() +
                                 "/threads:" + std::to_string(threads);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) { run(state, pass, threads, tokens, out, in); })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
      }
    }
  }
}

}  // namespace ms::ops

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  ms::ops::register_linear("llama_124m");
  ms::ops::register_linear("gemm_cases");
  benchmark::RunSpecifiedBenchmarks();
}
