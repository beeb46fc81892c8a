// Writes JSON: exact integers, microseconds with three decimals, keys in call order, one line unless pretty, always
// valid UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::profile {

// text with invalid UTF-8 replaced by U+FFFD.
std::string valid_utf8(std::string_view text);
// text as a quoted and escaped JSON string; invalid UTF-8 becomes U+FFFD.
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

  // Returns the text so far with a newline, and empties the writer.
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
