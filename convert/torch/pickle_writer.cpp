#include "convert/torch/pickle_writer.h"

#include <bit>

#include "core/error.h"

namespace ms::convert {

std::string make_pickle(const std::function<void(PickleWriter&)>& write) {
  PickleWriter writer;
  write(writer);
  const size_t most = writer.out_.size();
  writer.counting_ = false;
  writer.out_ = std::string("\x80\x02", 2);
  writer.out_.reserve(most);
  write(writer);
  writer.out_ += '.';
  return std::move(writer.out_);
}

void PickleWriter::little_endian(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i) & 0xff);
}

void PickleWriter::integer(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (value >= 0 && value <= UINT8_MAX) {
    out_ += 'K';
    little_endian(bits, 1);
  } else if (value >= 0 && value <= UINT16_MAX) {
    out_ += 'M';
    little_endian(bits, 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    out_ += 'J';
    little_endian(bits, 4);
  } else {
    int bytes = 8;  // the fewest bytes that keep the sign
    while (value >> (8 * bytes - 9) == value >> 63) --bytes;
    out_ += '\x8a';
    little_endian(static_cast<uint64_t>(bytes), 1);
    little_endian(bits, bytes);
  }
}

void PickleWriter::real(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  out_ += 'G';
  for (int shift = 56; shift >= 0; shift -= 8) out_ += static_cast<char>(bits >> shift & 0xff);
}

// Fetches it from the memo if it was written before.
bool PickleWriter::was_written(Shared& shared) {
  if (counting_) return ++shared.uses > 1;
  if (shared.memo < 0) return false;
  out_ += shared.memo <= UINT8_MAX ? 'h' : 'j';
  little_endian(static_cast<uint64_t>(shared.memo), shared.memo <= UINT8_MAX ? 1 : 4);
  return true;
}

void PickleWriter::remember(Shared& shared) {
  if (counting_ || shared.uses < 2) return;
  shared.memo = memo_++;
  out_ += shared.memo <= UINT8_MAX ? 'q' : 'r';
  little_endian(static_cast<uint64_t>(shared.memo), shared.memo <= UINT8_MAX ? 1 : 4);
}

void PickleWriter::text(std::string_view utf8) {
  Shared& shared = texts_[std::string(utf8)];
  if (was_written(shared)) return;
  out_ += 'X';
  little_endian(utf8.size(), 4);
  out_ += utf8;
  remember(shared);
}

void PickleWriter::symbol(std::string_view module, std::string_view name) {
  std::string line = core::cat(module, "\n", name, "\n");
  Shared& shared = symbols_[line];
  if (was_written(shared)) return;
  out_ += 'c';
  out_ += line;
  remember(shared);
}

void PickleWriter::marked(const Emit& items, std::string_view opcode, std::string_view if_empty) {
  out_ += '(';
  const size_t begin = out_.size();
  items();
  const bool is_empty = out_.size() == begin;
  if (is_empty) out_.pop_back();
  out_ += is_empty ? if_empty : opcode;
}

void PickleWriter::tuple(const Emit& items) { marked(items, "t", ")"); }

void PickleWriter::integers(std::span<const int64_t> values) {
  constexpr char kOpcodes[] = {')', '\x85', '\x86', '\x87'};  // tuples of up to three items
  if (values.size() >= sizeof kOpcodes) out_ += '(';
  for (const int64_t value : values) integer(value);
  out_ += values.size() < sizeof kOpcodes ? kOpcodes[values.size()] : 't';
}

void PickleWriter::list(const Emit& items) {
  out_ += ']';
  marked(items, "e", "");
}

void PickleWriter::set_items(const Emit& items) { marked(items, "u", ""); }

void PickleWriter::dict(const Emit& items) {
  out_ += '}';
  set_items(items);
}

void PickleWriter::call(std::string_view module, std::string_view name, const Emit& arguments) {
  symbol(module, name);
  tuple(arguments);
  out_ += 'R';
}

void PickleWriter::instance(std::string_view module, std::string_view name, const Emit& state) {
  symbol(module, name);
  out_ += ")\x81";
  state();
  out_ += 'b';
}

void PickleWriter::persistent(const Emit& id) {
  id();
  out_ += 'Q';
}

}  // namespace ms::convert
