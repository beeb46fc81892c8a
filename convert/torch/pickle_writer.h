// Writes pickles that PyTorch's weights_only loader accepts: protocol 2, with only the opcodes that torch.save uses.
//
// The object is described by a function that calls the writer. It is called twice: the first call counts, so that only
// strings and symbols that repeat are stored in the memo (BINPUT) and fetched from it (BINGET).
// Source: the opcodes as documented in CPython's Lib/pickletools.py.
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
  void symbol(std::string_view module, std::string_view name);  // a class, a function, or torch.float32

  // Containers of the values that `items` writes. For a dictionary: key, value, key, value, ..
  void tuple(const Emit& items);
  void integers(std::span<const int64_t> values);  // a tuple of integers
  void list(const Emit& items);
  void dict(const Emit& items);
  // Writes module.name(*arguments); set_items() then sets entries in the result, as in a dictionary.
  void call(std::string_view module, std::string_view name, const Emit& arguments);
  void set_items(const Emit& items);
  // An instance of a class, created without calling its constructor; `state` becomes its __dict__.
  void instance(std::string_view module, std::string_view name, const Emit& state);
  // A persistent id, which the reader resolves: a storage.
  void persistent(const Emit& id);

 private:
  friend std::string make_pickle(const std::function<void(PickleWriter&)>& write);
  struct Shared {
    int64_t uses = 0;
    int64_t memo = -1;  // memo index; -1: not written yet
  };
  bool was_written(Shared& shared);
  void remember(Shared& shared);
  void little_endian(uint64_t value, int bytes);
  void marked(const Emit& items, std::string_view opcode, std::string_view if_empty);

  bool counting_ = true;
  std::unordered_map<std::string, Shared> texts_, symbols_;
  int64_t memo_ = 0;  // number of memo entries
  std::string out_;
};

// Returns the pickle of the one object that `write` writes. `write` must write the same in both calls.
std::string make_pickle(const std::function<void(PickleWriter&)>& write);

}  // namespace ms::convert
