// record_loop FOLDER: one rank that records spans until it is killed, for scripts that kill it.
#include <chrono>
#include <thread>

#include "core/trace/span.h"

int main(int argc, char** argv) {
  using namespace ms::core::trace;
  if (argc != 2) return 2;
  Recorder recorder;
  Options options;
  options.level = Level::kLevel1;
  options.with_cpu = true;
  options.save_path = argv[1];
  recorder.start(options);
  for (int64_t i = 0;; ++i) {
    Span op(&recorder, Category::kCpuOp, "ms::linear");
    Span kernel(&recorder, Category::kKernel, "linear", i, 4096);
    // About one chunk per 50 ms, so that kills also come while a chunk is written.
    if (i % 2000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
