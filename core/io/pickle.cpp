#include "core/io/pickle.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "core/error.h"
#include "core/log.h"
#include "core/printable.h"

namespace ms::core {
namespace {

constexpr size_t kMaxStack = size_t{1} << 20;
constexpr size_t kMaxNodes = size_t{1} << 26;

// Names as in pickletools.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kNewObjEx = 0x92,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

// Returns true for symbols that would run commands; no program that saves tensors uses them.
bool is_hostile(std::string_view module, std::string_view name) {
  constexpr std::string_view kModules[] = {"os",  "posix", "nt",    "subprocess", "sys",       "shutil", "socket",
                                           "pty", "code",  "runpy", "commands",   "importlib", "ctypes", "webbrowser"};
  constexpr std::string_view kBuiltins[] = {"eval", "exec", "compile", "open", "__import__", "input"};
  if (module == "builtins" || module == "__builtin__") {
    return std::find(std::begin(kBuiltins), std::end(kBuiltins), name) != std::end(kBuiltins);
  }
  return std::find(std::begin(kModules), std::end(kModules), module) != std::end(kModules);
}

}  // namespace

Pickle::Pickle(std::string bytes, std::string where) : bytes_(std::move(bytes)), where_(std::move(where)) {
  while (!stopped_) {
    opcode_at_ = at_;
    step(static_cast<uint8_t>(take(1)));
  }
  for (const Symbol& symbol : symbols_) {
    if (!is_hostile(symbol.module, symbol.name)) continue;
    log_warning("core.pickle",
                cat(where_, ": names ", printable(cat(symbol.module, ".", symbol.name)),
                    ": nothing in it is executed here, but do not load it with a program that executes pickles"));
    break;
  }
}

void Pickle::corrupt(const std::string& what) const {
  throw Error(ErrorCode::kCorruptData, cat(where_, ": the pickle at byte ", opcode_at_, ": ", what));
}

uint64_t Pickle::take(size_t size) {
  uint64_t value = 0;
  const std::string_view bytes = take_bytes(size);
  for (size_t i = 0; i < size; ++i) value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

std::string_view Pickle::take_bytes(uint64_t size) {
  if (size > bytes_.size() - at_) corrupt("it is truncated");
  const std::string_view taken = std::string_view(bytes_).substr(at_, static_cast<size_t>(size));
  at_ += static_cast<size_t>(size);
  return taken;
}

std::string_view Pickle::take_line() {
  const size_t end = bytes_.find('\n', at_);
  if (end == std::string::npos) corrupt("a name without an end");
  const std::string_view line = take_bytes(end - at_);
  ++at_;
  return line;
}

void Pickle::push(uint32_t value) {
  if (stack_.size() >= kMaxStack) corrupt(cat("more than ", kMaxStack, " values on the stack"));
  stack_.push_back(value);
}

uint32_t Pickle::top() const {
  if (stack_.size() == (marks_.empty() ? 0 : marks_.back())) corrupt("a value is missing");
  return stack_.back();
}

uint32_t Pickle::pop() {
  const uint32_t value = top();
  stack_.pop_back();
  return value;
}

size_t Pickle::pop_mark() {
  if (marks_.empty()) corrupt("a mark is missing");
  const size_t begin = marks_.back();
  marks_.pop_back();
  return begin;
}

uint32_t Pickle::add(PickleKind kind, uint64_t number) {
  if (nodes_.size() >= kMaxNodes) corrupt(cat("more than ", kMaxNodes, " values"));
  nodes_.push_back({number, 0, kNothing, kNothing, kind});
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t Pickle::add_text(PickleKind kind, uint64_t size) {
  if (size > UINT32_MAX) corrupt("a string of more than 4 GiB");
  take_bytes(size);
  const uint32_t value = add(kind, at_ - static_cast<size_t>(size));
  nodes_[value].size = static_cast<uint32_t>(size);
  return value;
}

// Reads a two's complement integer of `size` bytes.
uint32_t Pickle::add_integer(uint64_t size) {
  if (size > 8) return add_text(PickleKind::kLong, size);
  uint64_t value = take(static_cast<size_t>(size));
  if (size > 0 && size < 8 && (value >> (8 * size - 1)) != 0) value |= ~uint64_t{0} << (8 * size);
  return add(PickleKind::kInt, value);
}

uint32_t Pickle::add_symbol(std::string_view module, std::string_view name) {
  symbols_.push_back({module, name});
  return add(PickleKind::kSymbol, symbols_.size() - 1);
}

uint32_t Pickle::add_call(uint32_t callee, uint32_t arguments) {
  if (nodes_[arguments].kind != PickleKind::kTuple) corrupt("arguments that are not a tuple");
  calls_.push_back({callee, arguments, kNothing});
  return add(PickleKind::kCall, calls_.size() - 1);
}

void Pickle::append(uint32_t container, uint32_t value) {
  links_.push_back({value, kNothing});
  const auto link = static_cast<uint32_t>(links_.size() - 1);
  Node& node = nodes_[container];
  if (node.first == kNothing) {
    node.first = link;
  } else {
    links_[node.last].next = link;
  }
  node.last = link;
  ++node.size;
}

void Pickle::append_from(uint32_t container, size_t begin) {
  if (links_.size() + (stack_.size() - begin) >= 2 * kMaxNodes) corrupt("too many items");
  for (size_t i = begin; i < stack_.size(); ++i) append(container, stack_[i]);
  stack_.resize(begin);
}

std::string_view Pickle::text_of(uint32_t value) const {
  const Node& node = nodes_[value];
  return std::string_view(bytes_).substr(static_cast<size_t>(node.number), node.size);
}

// None, numbers and empty containers.
bool Pickle::push_simple(uint8_t opcode) {
  switch (opcode) {
    case kNone:
      return push(add(PickleKind::kNone)), true;
    case kNewTrue:
    case kNewFalse:
      return push(add(PickleKind::kBool, opcode == kNewTrue ? 1 : 0)), true;
    case kBinInt:
      return push(add_integer(4)), true;
    case kBinInt1:
      return push(add(PickleKind::kInt, take(1))), true;
    case kBinInt2:
      return push(add(PickleKind::kInt, take(2))), true;
    case kLong1:
      return push(add_integer(take(1))), true;
    case kLong4:
      return push(add_integer(take(4))), true;
    case kBinFloat: {
      uint64_t bits = 0;
      for (const char c : take_bytes(8)) bits = bits << 8 | static_cast<unsigned char>(c);
      return push(add(PickleKind::kFloat, bits)), true;
    }
    case kEmptyTuple:
      return push(add(PickleKind::kTuple)), true;
    case kEmptyList:
      return push(add(PickleKind::kList)), true;
    case kEmptyDict:
      return push(add(PickleKind::kDict)), true;
    case kEmptySet:
      return push(add(PickleKind::kSet)), true;
    default:
      return false;
  }
}

bool Pickle::push_text(uint8_t opcode) {
  switch (opcode) {
    case kShortBinString:  // a Python 2 str
    case kShortBinUnicode:
      return push(add_text(PickleKind::kString, take(1))), true;
    case kBinString:
    case kBinUnicode:
      return push(add_text(PickleKind::kString, take(4))), true;
    case kBinUnicode8:
      return push(add_text(PickleKind::kString, take(8))), true;
    case kShortBinBytes:
      return push(add_text(PickleKind::kBytes, take(1))), true;
    case kBinBytes:
      return push(add_text(PickleKind::kBytes, take(4))), true;
    case kBinBytes8:
    case kByteArray8:
      return push(add_text(PickleKind::kBytes, take(8))), true;
    case kGlobal: {
      const std::string_view module = take_line();
      return push(add_symbol(module, take_line())), true;
    }
    case kStackGlobal: {
      const uint32_t name = pop(), module = pop();
      if (nodes_[name].kind != PickleKind::kString || nodes_[module].kind != PickleKind::kString) {
        corrupt("a symbol whose name is not a string");
      }
      return push(add_symbol(text_of(module), text_of(name))), true;
    }
    default:
      return false;
  }
}

// Collects values from the stack into a new container.
bool Pickle::collect(uint8_t opcode) {
  size_t begin = 0;
  switch (opcode) {
    case kTuple1:
    case kTuple2:
    case kTuple3: {
      const size_t count = opcode - kTuple1 + size_t{1};
      if (stack_.size() - (marks_.empty() ? 0 : marks_.back()) < count) corrupt("a value is missing");
      begin = stack_.size() - count;
      break;
    }
    case kTuple:
    case kFrozenSet:
      begin = pop_mark();
      break;
    case kBinPersId:
      top();
      begin = stack_.size() - 1;
      break;
    default:
      return false;
  }
  const PickleKind kind = opcode == kFrozenSet   ? PickleKind::kSet
                          : opcode == kBinPersId ? PickleKind::kPersistent
                                                 : PickleKind::kTuple;
  const uint32_t value = add(kind);
  append_from(value, begin);
  push(value);
  return true;
}

// Adds items to a container on the stack, which may be the result of a call.
bool Pickle::extend(uint8_t opcode) {
  PickleKind wanted = PickleKind::kList;
  size_t begin = 0;
  switch (opcode) {
    case kAppends:
      begin = pop_mark();
      break;
    case kAppend:
      top();
      begin = stack_.size() - 1;
      break;
    case kAddItems:
      wanted = PickleKind::kSet;
      begin = pop_mark();
      break;
    case kSetItems:
      wanted = PickleKind::kDict;
      begin = pop_mark();
      break;
    case kSetItem:
      wanted = PickleKind::kDict;
      if (stack_.size() < 2) corrupt("a value is missing");
      begin = stack_.size() - 2;
      break;
    default:
      return false;
  }
  if (begin == 0 || begin - 1 < (marks_.empty() ? 0 : marks_.back())) corrupt("a container is missing");
  const uint32_t container = stack_[begin - 1];
  const PickleKind kind = nodes_[container].kind;
  if (kind != wanted && kind != PickleKind::kCall) corrupt(cat("items for ", pickle_kind_name(kind)));
  if (wanted == PickleKind::kDict && (stack_.size() - begin) % 2 != 0) corrupt("a key without a value");
  append_from(container, begin);
  return true;
}

bool Pickle::build(uint8_t opcode) {
  switch (opcode) {
    case kReduce:
    case kNewObj: {
      const uint32_t arguments = pop(), callee = pop();
      return push(add_call(callee, arguments)), true;
    }
    case kNewObjEx: {
      const uint32_t named = pop(), arguments = pop(), callee = pop();
      if (nodes_[named].kind != PickleKind::kDict) corrupt("keyword arguments that are not a dict");
      const uint32_t call = add_call(callee, arguments);
      for (uint32_t link = nodes_[named].first; link != kNothing; link = links_[link].next) {
        append(call, links_[link].value);
      }
      return push(call), true;
    }
    case kBuild: {
      const uint32_t state = pop(), object = top();
      if (nodes_[object].kind != PickleKind::kCall) corrupt(cat("a state for ", pickle_kind_name(nodes_[object].kind)));
      calls_[static_cast<size_t>(nodes_[object].number)].state = state;
      return true;
    }
    default:
      return false;
  }
}

bool Pickle::use_memo(uint8_t opcode) {
  const auto put = [this](uint64_t key) {
    if (key > bytes_.size()) corrupt(cat("memo ", key, " in a pickle of ", bytes_.size(), " bytes"));
    if (memo_.size() <= key) memo_.resize(static_cast<size_t>(key) + 1, kNothing);
    memo_[static_cast<size_t>(key)] = top();
  };
  const auto get = [this](uint64_t key) {
    if (key >= memo_.size() || memo_[static_cast<size_t>(key)] == kNothing) corrupt(cat("memo ", key, " is empty"));
    push(memo_[static_cast<size_t>(key)]);
  };
  switch (opcode) {
    case kBinPut:
      return put(take(1)), true;
    case kLongBinPut:
      return put(take(4)), true;
    case kMemoize:
      return put(memo_.size()), true;
    case kBinGet:
      return get(take(1)), true;
    case kLongBinGet:
      return get(take(4)), true;
    default:
      return false;
  }
}

void Pickle::step(uint8_t opcode) {
  if (push_simple(opcode) || push_text(opcode) || collect(opcode) || extend(opcode) || build(opcode) ||
      use_memo(opcode)) {
    return;
  }
  switch (opcode) {
    case kProto:
      if (const uint64_t version = take(1); version > 5) {
        throw Error(ErrorCode::kUnsupported, cat(where_, ": a pickle of protocol ", version, "; 2 to 5 are supported"));
      }
      return;
    case kFrame:
      if (take(8) > bytes_.size() - at_) corrupt("a frame that is longer than the rest of the pickle");
      return;
    case kMark:
      if (marks_.size() >= kMaxStack) corrupt("too many marks");
      marks_.push_back(stack_.size());
      return;
    case kPop:
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.pop_back();
      } else {
        pop();
      }
      return;
    case kPopMark:
      stack_.resize(pop_mark());
      return;
    case kDup:
      return push(top());
    case kStop:
      root_ = pop();
      if (!stack_.empty() || !marks_.empty()) corrupt("values are left on the stack at the end");
      stopped_ = true;
      return;
    default:
      break;
  }
  constexpr std::string_view kRefused("ILFSVPgpdlio\x82\x83\x84\x97\x98");  // valid in CPython, refused here
  if (kRefused.find(static_cast<char>(opcode)) != std::string_view::npos) {
    throw Error(ErrorCode::kUnsupported, cat(where_, ": the pickle at byte ", opcode_at_, ": opcode ", int{opcode},
                                             " (text, extension or out of band), which torch does not write"));
  }
  corrupt(cat("opcode ", int{opcode}, ", which does not exist"));
}

}  // namespace ms::core
