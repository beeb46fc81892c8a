// Writes a pickle that PyTorch's weights_only loader takes: protocol 2, and of its opcodes those that torch.save uses.
//
// What an object consists of is said by a function that calls the writer, and it is called twice: once to count, so
// that of texts and symbols those that occur again, and only those, are remembered (BINPUT) and fetched (BINGET).
// Source: the opcodes as CPython's Lib/pickletools.py documents them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace ms::convert {

class PickleWriter {
 public:
  using Emit = std::function<void()>;

  void none() { out_ += 'N'; }
  void boolean(bool value) { out_ += value ? '\x88' : '\x89'; }
  void integer(int64_t value);
  void real(double value);
  void text(std::string_view utf8);
  void symbol(std::string_view module, std::string_view name);  // a class, a function, torch's float32

  // Containers: what `items` writes. Of a dictionary: key, value, key, value, ..
  void tuple(const Emit& items);
  void integers(std::span<const int64_t> values);  // a tuple of them
  void list(const Emit& items);
  void dict(const Emit& items);
  // module.name(*arguments), and what is then set in it as in a dictionary.
  void call(std::string_view module, std::string_view name, const Emit& arguments);
  void set_items(const Emit& items);
  // An instance of a class made without a call of its constructor, with `state` for its __dict__.
  void instance(std::string_view module, std::string_view name, const Emit& state);
  // What the reader looks up by this id: a storage.
  void persistent(const Emit& id);

 private:
  friend std::string make_pickle(const std::function<void(PickleWriter&)>& write);
  struct Shared {
    int64_t uses = 0;
    int64_t memo = -1;  // its number; -1: not written yet
  };
  bool was_written(Shared& shared);
  void remember(Shared& shared);
  void little_endian(uint64_t value, int bytes);
  void marked(const Emit& items, std::string_view opcode, std::string_view if_empty);

  bool counting_ = true;
  std::unordered_map<std::string, Shared> texts_, symbols_;
  int64_t memo_ = 0;  // numbers given
  std::string out_;
};

// The pickle of the one object that `write` writes, the same in both of its calls.
std::string make_pickle(const std::function<void(PickleWriter&)>& write);

}  // namespace ms::convert
