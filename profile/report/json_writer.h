// Writes JSON as results want it (traces.md 13.2): integers exact, microseconds with three decimals, keys in the order
// given, one line unless pretty, always valid UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::profile {

// text with what is no UTF-8 replaced by U+FFFD.
std::string valid_utf8(std::string_view text);
// text with quotes, escaped; bytes that are no UTF-8 become U+FFFD.
std::string json_string(std::string_view text);
// ns as microseconds with three decimals, exactly: 1500 -> "1.500".
std::string microseconds(int64_t ns);

class JsonWriter {
 public:
  explicit JsonWriter(bool pretty) : pretty_(pretty) {}

  JsonWriter& key(std::string_view name);
  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }
  void value(std::string_view text) { raw(json_string(text)); }
  void value(const char* text) { value(std::string_view(text)); }
  void value(int64_t number) { raw(std::to_string(number)); }
  void value(int number) { value(int64_t{number}); }
  void value(bool truth) { raw(truth ? "true" : "false"); }
  void null() { raw("null"); }
  void us(int64_t ns) { raw(microseconds(ns)); }
  void decimal(double number, int decimals);  // null when not finite
  // 100 * part / whole with four decimals; null when whole is 0.
  void percent(int64_t part, int64_t whole);

  // The text so far, with a newline. The writer is empty afterwards.
  std::string take();

 private:
  void open(char bracket);
  void close(char bracket);
  void raw(std::string_view text);
  void separate();
  void new_line();

  std::string out_;
  bool pretty_;
  bool after_key_ = false;
  std::vector<bool> has_members_;
};

}  // namespace ms::profile
