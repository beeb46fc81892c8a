// Random events that are hard to tell apart from the text around them, and all that a reader makes of them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "core/error.h"
#include "profile/ingest/chrome_json.h"
#include "tests/support/tell_trace.h"

namespace ms::profile::detail {

inline uint64_t seed() {
  const char* given = std::getenv("MS_TEST_SEED");
  const uint64_t chosen = given == nullptr ? 20261122 : std::strtoull(given, nullptr, 10);
  std::printf("MS_TEST_SEED=%llu\n", static_cast<unsigned long long>(chosen));
  return chosen;
}

// Everything that a reader returns for a stream: the store and its issues, or the error.
inline std::string everything_read(ByteStream& stream, const ChromeJsonOptions& options) {
  RankTrace trace;
  FileInfo file;
  ImportStats stats;
  try {
    const bool is_trace = read_chrome_json(stream, "a.json", trace, file, stats, options);
    std::string out = core::cat(is_trace, " ", file.events, " of ", file.json_bytes, "\n", test::tell(trace));
    for (const std::string& line : stats.lines()) out += line + "\n";
    return out;
  } catch (const core::Error& e) {
    return e.what();
  }
}

// Every kind of event, names and ids of every kind, and objects in arguments that look like events.
inline std::string nasty_events(std::mt19937_64& random, int count) {
  using core::cat;
  const auto pick = [&](auto... choices) {
    const std::string all[] = {choices...};
    return all[random() % sizeof...(choices)];
  };
  std::string out;
  for (int i = 0; i < count; ++i) {
    const std::string ph = pick("X", "X", "X", "X", "X", "s", "f", "B", "E", "i", "C", "M", "b", "e", "t", "n", "?");
    const std::string id = pick("1", "2", "\"0x2\"", "\"a\"", "77777777777", "18446744073709551613");
    const std::string name =
        pick("aten::mm", "kernel_1", "kernel_2", "[memory]", "thread_name", "process_name", "nccl:all_reduce",
             R"(a \"{\" b)", "}],[{", "\\\\", "tab\there", "\xc3\xbc", cat("new", random() % 50));
    const std::string args = pick(
        R"("device": 0, "stream": 7, "Collective name": "allreduce", "Seq": 3, "dtype": "Float")",
        R"("device": 0, "stream": "side", "bytes": 12)", R"("Input Dims": [[2, 3], [3, 4]], "Input type": ["a"])",
        R"("name": "lane name", "value": 1.5, "other": 2)", R"("Addr": 5, "Bytes": -8, "Total Allocated": 3)",
        R"("x": [{"ph": "X", "name": "no event", "ts": 1, "dur": 1}, {"ph": "X", "name": "nor this", "ts": 2}])",
        R"("x": {"ph": "X", "ts": 9, "name": "in an object"}, "y": {"traceEvents": [{"ph": "X", "ts": 1}]})",
        R"("x": "{\"ph\": \"X\"},", "{": "ph", ":": "X", "}": ",")", R"("Task Type": "AI_CORE", "connection_id": 5)");
    const std::string ts = pick("1", "5.001", "\"7.5\"", "900", "12.25", "null", "1e3", cat(random() % 1000));
    out += cat(
        i == 0 ? "" : pick(",", ",\n  ", " , "), "{\"ph\":\"", ph, "\",\"name\": \"", name, "\", \"cat\": \"",
        pick("kernel", "cpu_op", "cuda_runtime", "gpu_memcpy", "cuda_sync", "ac2g", "unheard of", "HostToDevice",
             "user_annotation"),
        "\", \"pid\": ", pick("0", "1", "\"CUDA functions\"", "\"Spans\""),
        ", \"tid\": ", pick("7", "8", "\"stream\"", "123456789012"), ", \"ts\": ", ts,
        ", \"dur\": ", pick("1", "2.5", "-1", "0"), random() % 3 == 0 ? cat(", \"id\": ", id) : "",
        random() % 4 == 0 ? "" : cat(", \"args\": {", args, ", \"correlation\": ", id, ", \"External id\": ", id, "}"),
        "}");
  }
  return out;
}

}  // namespace ms::profile::detail
