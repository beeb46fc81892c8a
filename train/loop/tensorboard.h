// Writes scalars as TensorBoard reads them: TFRecord-framed Event messages in an events.out.tfevents.* file
// (tensorflow/core/util/event.proto, tsl/lib/io/record_writer.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/io/file.h"

namespace ms::train {

// A record of a TFRecord file: length, its masked CRC32C, data, its masked CRC32C.
std::string tfrecord(std::string_view data);

// Event messages, serialised. wall_time: seconds since 1970.
std::string version_event(double wall_time);
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value);

// One event file of this process, in a folder that is made if it is not there. Inactive when default-constructed.
class EventWriter {
 public:
  EventWriter() = default;
  // queue_size: events that wait before they are written; flush_s: seconds that they wait at most, looked at when one
  // is added (TensorBoard's flush_secs). Throws kIo.
  EventWriter(const std::string& folder, int64_t queue_size, double flush_s = 120);
  ~EventWriter();
  EventWriter(EventWriter&& other) noexcept = default;
  EventWriter& operator=(EventWriter&& other) noexcept = default;

  bool active() const { return file_.is_open(); }
  void add_scalar(std::string_view tag, double value, int64_t step);  // throws kIo
  // The same twice, as Megatron: by iteration, and as "<tag> vs samples" by samples.
  void add_scalar(const std::string& tag, double value, int64_t iteration, int64_t samples);
  void flush();  // throws kIo; what could not be written is lost

 private:
  core::File file_;
  std::string queue_;
  int64_t queue_size_ = 0, queued_ = 0;
  double flush_s_ = 0;
  std::chrono::steady_clock::time_point flushed_;
};

}  // namespace ms::train
