#include "train/loop/tensorboard.h"

#include <unistd.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "kernels/checksum.h"

namespace ms::train {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and written as it lies");

template <class T>
void append_raw(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

// Rotated and shifted, so that the sum of data that holds its own sum is not special (record_writer.h).
uint32_t masked_crc(std::string_view data) {
  const uint32_t crc = kernels::crc32c(data.data(), data.size());
  return std::rotr(crc, 15) + 0xa282ead8U;
}

// Protocol buffers: a key is field << 3 | wire type; 0: varint, 1: 8 bytes, 2: length and bytes, 5: 4 bytes.
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void append_key(std::string& out, int field, WireType type) {
  append_varint(out, static_cast<uint64_t>(field << 3 | type));
}
void append_bytes(std::string& out, int field, std::string_view bytes) {
  append_key(out, field, kBytes);
  append_varint(out, bytes.size());
  out += bytes;
}

// Fields of Event: wall_time 1, step 2, file_version 3, summary 5.
std::string event(double wall_time, int64_t step) {
  std::string out;
  append_key(out, 1, kFixed64);
  append_raw(out, wall_time);
  if (step != 0) {
    append_key(out, 2, kVarint);
    append_varint(out, static_cast<uint64_t>(step));
  }
  return out;
}

double now_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

std::string tfrecord(std::string_view data) {
  std::string out;
  append_raw(out, static_cast<uint64_t>(data.size()));
  append_raw(out, masked_crc(out));
  out += data;
  append_raw(out, masked_crc(data));
  return out;
}

std::string version_event(double wall_time) {
  std::string out = event(wall_time, 0);
  append_bytes(out, 3, "brain.Event:2");
  return out;
}

std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  std::string entry;  // Summary.Value: tag 1, simple_value 2
  append_bytes(entry, 1, tag);
  append_key(entry, 2, kFixed32);
  append_raw(entry, value);
  std::string summary;  // Summary: value 1
  append_bytes(summary, 1, entry);
  std::string out = event(wall_time, step);
  append_bytes(out, 5, summary);
  return out;
}

EventWriter::EventWriter(const std::string& folder, int64_t queue_size, double flush_s)
    : queue_size_(queue_size), flush_s_(flush_s) {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);  // opening the file says what is wrong
  try {
    file_ = core::File::open_append(
        core::cat(folder, "/events.out.tfevents.", static_cast<int64_t>(now_s()), ".", host, ".", ::getpid()));
  } catch (const core::Error& e) {
    throw core::Error(core::ErrorCode::kIo, core::cat("--tensorboard-dir ", folder, ": ", e.what()));
  }
  queue_ = tfrecord(version_event(now_s()));
  flush();
}

EventWriter::~EventWriter() {
  try {
    flush();  // what the last has left
  } catch (const core::Error& e) {
    core::log_warning("train.events", e.what());  // a destructor does not throw
  }
}

void EventWriter::add_scalar(std::string_view tag, double value, int64_t step) {
  if (!active()) return;
  queue_ += tfrecord(scalar_event(now_s(), step, tag, static_cast<float>(value)));
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - flushed_;
  if (++queued_ >= queue_size_ || waited.count() >= flush_s_) flush();
}

void EventWriter::add_scalar(const std::string& tag, double value, int64_t iteration, int64_t samples) {
  add_scalar(tag, value, iteration);
  add_scalar(tag + " vs samples", value, samples);
}

void EventWriter::flush() {
  if (!active()) return;
  const std::string records = std::exchange(queue_, {});
  queued_ = 0;
  flushed_ = std::chrono::steady_clock::now();
  if (records.empty()) return;
  try {
    file_.append(std::as_bytes(std::span(records)));
  } catch (const core::Error& e) {
    throw e.within("--tensorboard-dir");
  }
}

}  // namespace ms::train
