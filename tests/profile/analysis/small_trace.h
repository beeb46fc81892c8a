// Writes events of a Chrome trace as text, for traces small enough to count by hand. Times in microseconds.
#pragma once

#include <string>

namespace ms::profile::test {

// A host event. arguments: members of "args".
inline std::string event(const std::string& category, const std::string& name, int ts, int dur,
                         const std::string& arguments) {
  return R"({"ph": "X", "pid": 1, "tid": 2, "cat": ")" + category + R"(", "name": ")" + name + R"(", "ts": )" +
         std::to_string(ts) + R"(, "dur": )" + std::to_string(dur) + R"(, "args": {)" + arguments + "}}";
}

inline std::string launch(int correlation, int ts, int dur, const std::string& name = "cudaLaunchKernel") {
  return event("cuda_runtime", name, ts, dur, R"("correlation": )" + std::to_string(correlation));
}

inline std::string kernel(int correlation, int ts, int dur, int stream = 7) {
  return event(
      "kernel", "gemm", ts, dur,
      R"("device": 0, "stream": )" + std::to_string(stream) + R"(, "correlation": )" + std::to_string(correlation));
}

}  // namespace ms::profile::test
