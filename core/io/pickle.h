// Parses Python pickles of protocols 2 to 5 into inert trees of values. Nothing is executed: a symbol is stored as its
// name, a call as a node with the callee and the arguments.
//
// Symbols that only an attack would name (os.system) cause a warning.
//
// Source: the opcodes as documented in CPython's Lib/pickletools.py. Text opcodes of protocol 0, extension codes and
// out-of-band buffers are refused. The parser does not recurse; it needs at most a few dozen bytes of memory for each
// byte of the pickle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ms::core {

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,   // fits in 64 bits
  kLong,  // larger: text() is its two's complement, little-endian
  kFloat,
  kString,  // UTF-8
  kBytes,
  kTuple,
  kList,
  kDict,  // items are key, value, key, value, ..
  kSet,
  kSymbol,      // module() and text()
  kCall,        // callee and arguments; state from BUILD, items from APPENDS or SETITEMS
  kPersistent,  // item 0 is the persistent id
};

std::string_view pickle_kind_name(PickleKind kind);  // "a list", for errors

class Pickle;

// A value of a pickle; valid as long as the Pickle. Values form a graph: a value may occur in several places, or
// contain itself.
class PickleValue {
 public:
  PickleKind kind() const;
  bool is(PickleKind wanted) const { return kind() == wanted; }
  uint32_t id() const { return id_; }  // equal for the same object

  bool boolean() const;  // these throw kCorruptData for any other kind
  int64_t integer() const;
  double real() const;              // kFloat, or kInt
  std::string_view text() const;    // kString, kBytes, kLong, kSymbol: the name
  std::string_view module() const;  // kSymbol
  bool is_symbol(std::string_view module, std::string_view name) const;

  // For kTuple, kList, kDict (alternating keys and values) and kSet: the items. For kCall: what was appended or set.
  std::vector<PickleValue> items() const;
  // For kDict, and kCall of a dictionary: (key, value) in the order of the pickle.
  std::vector<std::pair<PickleValue, PickleValue>> pairs() const;
  // Looks up a string key of a dictionary. Returns nullopt if the key is absent, if its value is None, or if this is
  // not a dictionary.
  std::optional<PickleValue> find(std::string_view key) const;

  // For kCall. arguments(): items of the argument tuple; state(): the argument of BUILD.
  PickleValue callee() const;
  std::vector<PickleValue> arguments() const;
  std::optional<PickleValue> state() const;
  bool is_call_of(std::string_view module, std::string_view name) const;

 private:
  friend class Pickle;
  PickleValue(const Pickle* pickle, uint32_t id) : pickle_(pickle), id_(id) {}
  const Pickle* pickle_;
  uint32_t id_;
};

class Pickle {
 public:
  // Parses and keeps the first pickle in `bytes`; `where` is prepended to messages. Throws kCorruptData with the byte
  // offset, kUnsupported for an opcode that is refused.
  Pickle(std::string bytes, std::string where);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  PickleValue root() const { return PickleValue(this, root_); }
  size_t end() const { return at_; }  // end offset of this pickle; another may follow
  const std::string& where() const { return where_; }

 private:
  friend class PickleValue;
  static constexpr uint32_t kNothing = UINT32_MAX;

  struct Node {
    // kInt, kBool: the number; kFloat: its bits; strings: offset in bytes_; kSymbol: index in symbols_; kCall: in
    // calls_.
    uint64_t number = 0;
    uint32_t size = 0;                           // strings: bytes; others: number of items
    uint32_t first = kNothing, last = kNothing;  // items, as a list in links_
    PickleKind kind = PickleKind::kNone;
  };
  struct Link {
    uint32_t value, next;
  };
  struct Symbol {
    std::string_view module, name;  // views of bytes_
  };
  struct Call {
    uint32_t callee, arguments, state;
  };

  [[noreturn]] void corrupt(const std::string& what) const;
  void step(uint8_t opcode);
  bool push_simple(uint8_t opcode);
  bool push_text(uint8_t opcode);
  bool collect(uint8_t opcode);
  bool extend(uint8_t opcode);
  bool build(uint8_t opcode);
  bool use_memo(uint8_t opcode);

  uint32_t add(PickleKind kind, uint64_t number = 0);
  uint32_t add_text(PickleKind kind, uint64_t size);
  uint32_t add_integer(uint64_t size);
  uint32_t add_symbol(std::string_view module, std::string_view name);
  uint32_t add_call(uint32_t callee, uint32_t arguments);
  void append(uint32_t container, uint32_t value);
  void append_from(uint32_t container, size_t begin);
  std::string_view text_of(uint32_t value) const;

  uint64_t take(size_t size);  // a little-endian number
  std::string_view take_bytes(uint64_t size);
  std::string_view take_line();
  void push(uint32_t value);
  uint32_t pop();
  uint32_t top() const;
  size_t pop_mark();

  std::string bytes_, where_;
  size_t at_ = 0, opcode_at_ = 0;
  bool stopped_ = false;
  uint32_t root_ = 0;
  std::vector<Node> nodes_;
  std::vector<Link> links_;
  std::vector<Symbol> symbols_;
  std::vector<Call> calls_;
  std::vector<uint32_t> stack_, memo_;
  std::vector<size_t> marks_;
};

}  // namespace ms::core
