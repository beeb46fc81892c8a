// Records one span of this program's own and finds the trace on disk.
#include "core/trace/recorder.h"

#include <cstdio>
#include <filesystem>

#include "core/trace/span.h"

int main() {
  using namespace ms::core::trace;
  Options options;
  options.save_path = "outside_trace";
  Recorder recorder;
  recorder.start(options);
  { Span span(&recorder, Category::kUserAnnotation, "outside_work"); }
  recorder.stop();
  const std::filesystem::path path = "outside_trace/rank_00000.mstrace";
  if (!std::filesystem::exists(path)) return 1;
  std::printf("recorder: %s has %lld bytes\n", path.c_str(), static_cast<long long>(std::filesystem::file_size(path)));
  return std::filesystem::file_size(path) > 8 ? 0 : 1;
}
