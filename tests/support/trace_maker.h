// Writes native traces with given times, so that analyses can be compared with closed-form answers.
//
//   TraceMaker maker(folder, rank, world_size);
//   maker.host("ProfilerStep#1", 0, 100'000);
//   maker.kernel("gemm", 10'000, 40'000);
//   maker.finish();
#pragma once

#include <zstd.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "core/trace/file_writer.h"
#include "kernels/checksum.h"

namespace ms::test {

class TraceMaker {
 public:
  TraceMaker(const std::filesystem::path& folder, int rank, int world_size, int64_t pid = 4242)
      : path_(make_path(folder, rank)),
        file_(path_, {{"format", 1},
                      {"producer", "msuite"},
                      {"rank", rank},
                      {"world_size", world_size},
                      {"level", "level1"},
                      {"pid", pid},
                      {"start_clocks_ns", {0, kUnixBase}}}) {}

  static constexpr int64_t kUnixBase = 1'700'000'000'000'000'000;

  void host(const std::string& name, int64_t start, int64_t end, int64_t thread = 100) {
    add(core::trace::EventKind::kUserAnnotation, name, start, end, lane(false, thread, "main"));
  }
  // Of a pipeline, as mstrain's executor annotates it.
  void action(const std::string& name, int64_t start, int64_t end, int64_t microbatch, int64_t chunk) {
    amounts(add(core::trace::EventKind::kUserAnnotation, name, start, end, lane(false, 100, "main")), microbatch,
            chunk);
  }
  void op(const std::string& name, int64_t start, int64_t end, const std::string& dims = {},
          const std::string& types = {}, int64_t thread = 100) {
    auto& event = add(core::trace::EventKind::kCpuOp, name, start, end, lane(false, thread, "main"));
    if (dims.empty()) return;
    event.flags |= core::trace::kHasShape;
    event.ref = tables_.intern_shapes(dims, types);
  }
  void launch(uint32_t correlation, int64_t start, int64_t end, int64_t thread = 100) {
    correlate(add(core::trace::EventKind::kRuntime, "cudaLaunchKernel", start, end, lane(false, thread, "main")),
              correlation);
  }
  void kernel(const std::string& name, int64_t start, int64_t end, uint32_t correlation = 0, int64_t flops = -1,
              int64_t bytes = -1) {
    auto& event = add(core::trace::EventKind::kKernel, name, start, end, lane(true, 7, "stream 7"));
    correlate(event, correlation);
    amounts(event, flops, bytes);
  }
  void copy(const std::string& name, int64_t start, int64_t end, int64_t bytes = -1) {
    amounts(add(core::trace::EventKind::kMemcpy, name, start, end, lane(true, 21, "stream 21")), -1, bytes);
  }
  void comm(const std::string& op, const std::string& group, const std::vector<int>& ranks, int64_t start, int64_t end,
            int64_t elements = 1, int peer = -1, bool async = false) {
    const std::string members = core::cat(ranks);
    auto& event = add(core::trace::EventKind::kComm, core::cat(op, "(", group, ")"), start, end,
                      lane(true, 20 + static_cast<int64_t>(group[0]), core::cat("stream ", group)));
    event.values = {sequences_[group]++, elements, elements, peer};
    event.ref = static_cast<uint32_t>(tables_.comms.size());
    tables_.comms.push_back(
        {tables_.intern(op), tables_.intern(group), tables_.intern(members), tables_.intern("fp32")});
    if (async) event.flags |= core::trace::kIsAsync;
  }
  // Sets the stack of the last event; the outermost frame first.
  void stack(const std::vector<std::string>& frames) {
    core::trace::Event& event = events_.back();
    for (const std::string& frame : frames) event.stack = tables_.intern_stack(event.stack, tables_.intern(frame));
    event.flags |= core::trace::kHasStack;
  }
  void memory(int64_t ts, int64_t address, int64_t bytes, int64_t total) {
    add(core::trace::EventKind::kMemory, "act", ts, ts, lane(false, 100, "main")).values = {address, bytes, total, 0};
  }
  void counter(const std::string& name, int64_t ts, double value) {
    add(core::trace::EventKind::kCounter, name, ts, ts, lane(false, 100, "main")).values[0] =
        std::bit_cast<int64_t>(value);
  }
  void clock(int64_t at, int64_t offset, int64_t error) { file_.write_clock(at, offset, error); }

  void flush() {
    file_.write_events(events_, tables_);
    events_.clear();
  }
  std::string finish(int64_t dropped = 0) {
    flush();
    file_.finish({{"dropped", dropped}});
    return path_;
  }
  const std::string& path() const { return path_; }

 private:
  static std::string make_path(const std::filesystem::path& folder, int rank) {
    std::filesystem::create_directories(folder);
    char name[32];
    std::snprintf(name, sizeof(name), "rank_%05d.mstrace", rank);
    return (folder / name).string();
  }
  uint16_t lane(bool device, int64_t id, const std::string& name) {
    const auto [entry, added] = lanes_.try_emplace({device, id}, static_cast<uint16_t>(tables_.lanes.size()));
    if (added) {
      tables_.lanes.push_back(
          {device ? core::trace::LaneKind::kStream : core::trace::LaneKind::kThread, id, tables_.intern(name)});
    }
    return entry->second;
  }
  core::trace::Event& add(core::trace::EventKind kind, const std::string& name, int64_t start, int64_t end,
                          uint16_t on_lane) {
    core::trace::Event event;
    event.kind = kind;
    event.start_ns = start;
    event.dur_ns = end - start;
    event.name = tables_.intern(name);
    event.lane = on_lane;
    return events_.emplace_back(event);
  }
  static void correlate(core::trace::Event& event, uint32_t correlation) {
    if (correlation == 0) return;
    event.flags |= core::trace::kHasCorrelation;
    event.correlation = correlation;
  }
  static void amounts(core::trace::Event& event, int64_t flops, int64_t bytes) {
    if (flops >= 0) event.flags |= core::trace::kHasFlops;
    if (bytes >= 0) event.flags |= core::trace::kHasBytes;
    event.values[0] = flops;
    event.values[1] = bytes;
  }

  std::string path_;
  core::trace::FileWriter file_;
  core::trace::Tables tables_;
  std::vector<core::trace::Event> events_;
  std::map<std::pair<bool, int64_t>, uint16_t> lanes_;
  std::map<std::string, int64_t> sequences_;
};

// A native file with one events chunk of this payload and correct checksums: for readers that must survive wrong
// contents.
inline std::string file_of_payload(const std::string& payload, uint32_t num_events,
                                   uint8_t version = core::trace::kFormatVersion) {
  using core::trace::put_fixed;
  std::string body;
  put_fixed(body, static_cast<uint8_t>(core::trace::ChunkKind::kEvents));
  put_fixed(body, version);
  put_fixed(body, uint16_t{0});
  put_fixed(body, static_cast<uint32_t>(payload.size()));
  put_fixed(body, uint64_t{0});
  put_fixed(body, uint64_t{0});
  put_fixed(body, num_events);
  put_fixed(body, uint32_t{0});
  std::string packed(ZSTD_compressBound(payload.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), payload.data(), payload.size(), 1));
  body += packed;
  std::string file(core::trace::kFileMagic);
  put_fixed(file, core::trace::kChunkMagic);
  put_fixed(file, static_cast<uint32_t>(body.size()));
  put_fixed(file, kernels::xxh3(body.data(), body.size()));
  return file + body;
}

}  // namespace ms::test
