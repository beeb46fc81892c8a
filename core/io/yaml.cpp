#include "core/io/yaml.h"

#include <yaml.h>

#include <algorithm>
#include <string>

#include "core/error.h"

namespace ms::core {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxDepth = 64;
constexpr int kMaxValues = 10000;  // a key of an ordered_json is found by going through all

class Parser {
 public:
  explicit Parser(std::string_view text) {
    if (yaml_parser_initialize(&parser_) == 0) throw Error(ErrorCode::kOutOfMemory, "no memory for a YAML parser");
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;
  ~Parser() { yaml_parser_delete(&parser_); }
  yaml_parser_t* get() { return &parser_; }

 private:
  yaml_parser_t parser_{};
};

class Document {
 public:
  Document(Parser& parser, std::string_view where) {
    if (yaml_parser_load(parser.get(), &document_) != 0) return;
    const yaml_parser_t& at = *parser.get();
    if (at.error == YAML_MEMORY_ERROR) throw Error(ErrorCode::kOutOfMemory, cat(where, ": no memory to read it"));
    throw Error(ErrorCode::kCorruptData,
                cat(where, ": line ", at.problem_mark.line + 1, ", column ", at.problem_mark.column + 1,
                    ": not valid YAML: ", at.problem == nullptr ? "unknown error" : at.problem));
  }
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;
  ~Document() { yaml_document_delete(&document_); }
  const yaml_node_t* root() { return yaml_document_get_root_node(&document_); }
  const yaml_node_t* node(int index) { return yaml_document_get_node(&document_, index); }

 private:
  yaml_document_t document_{};
};

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

class Reader {
 public:
  Reader(Document& document, std::string_view where) : document_(document), where_(where) {}

  ordered_json value(const yaml_node_t* node, int depth = 0) {
    if (depth > kMaxDepth) fail(node, cat("nested deeper than ", kMaxDepth));
    if (++values_ > kMaxValues) fail(node, cat("more than ", kMaxValues, " values"));
    check_tag(node);
    if (node->type == YAML_SCALAR_NODE) return scalar(node);
    if (node->type == YAML_MAPPING_NODE) return mapping(node, depth);
    ordered_json list = ordered_json::array();
    for (const int* item = node->data.sequence.items.start; item < node->data.sequence.items.top; ++item) {
      list.push_back(value(document_.node(*item), depth + 1));
    }
    return list;
  }

 private:
  [[noreturn]] void fail(const yaml_node_t* node, const std::string& what) const {
    throw Error(ErrorCode::kCorruptData, cat(where_, ": line ", node->start_mark.line + 1, ": ", what));
  }

  static std::string_view text_of(const yaml_node_t* node) {
    return {reinterpret_cast<const char*>(node->data.scalar.value), node->data.scalar.length};
  }

  void check_tag(const yaml_node_t* node) const {
    const std::string_view tag = node->tag == nullptr ? "" : reinterpret_cast<const char*>(node->tag);
    constexpr std::string_view kPrefix = "tag:yaml.org,2002:";
    if (tag.empty() || tag == "!") return;
    if (tag.starts_with(kPrefix) &&
        is_one_of(tag.substr(kPrefix.size()), {"str", "seq", "map", "null", "bool", "int", "float"})) {
      return;
    }
    fail(node, cat("the tag ", tag, " is not supported"));
  }

  ordered_json scalar(const yaml_node_t* node) const {
    const std::string_view text = text_of(node);
    if (node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return text;
    if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return nullptr;
    if (is_one_of(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) return true;
    if (is_one_of(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) return false;
    const std::string_view digits = text.substr(text.starts_with('-') || text.starts_with('+') ? 1 : 0);
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of("01234567_") == std::string_view::npos) {
      fail(node, cat(text, " begins with 0, which YAML reads as octal; write it without, or in quotes"));
    }
    return text;
  }

  ordered_json mapping(const yaml_node_t* node, int depth) {
    ordered_json own = ordered_json::object(), merged = ordered_json::object();
    const auto& pairs = node->data.mapping.pairs;
    for (const yaml_node_pair_t* pair = pairs.start; pair < pairs.top; ++pair) {
      const yaml_node_t* key = document_.node(pair->key);
      if (key->type != YAML_SCALAR_NODE) fail(key, "a key is no text");
      ordered_json read = value(document_.node(pair->value), depth + 1);
      const std::string name(text_of(key));
      if (name == "<<" && key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        merge(key, read, merged);
      } else if (!own.emplace(name, std::move(read)).second) {
        fail(key, cat("\"", name, "\" is given twice"));
      }
    }
    merge(node, merged, own);
    return own;
  }

  // What comes first counts.
  void merge(const yaml_node_t* at, const ordered_json& from, ordered_json& into) const {
    if (from.is_array()) {
      for (const ordered_json& each : from) merge(at, each, into);
      return;
    }
    if (!from.is_object()) fail(at, "<< merges a mapping, or a list of mappings");
    for (const auto& [name, inherited] : from.items()) {
      if (!into.contains(name)) into[name] = inherited;
    }
  }

  Document& document_;
  std::string_view where_;
  int values_ = 0;
};

}  // namespace

nlohmann::ordered_json parse_yaml(std::string_view text, std::string_view where) {
  Parser parser(text);
  Document first(parser, where);
  if (first.root() == nullptr) return nullptr;
  ordered_json value = Reader(first, where).value(first.root());
  Document second(parser, where);
  if (second.root() != nullptr) {
    throw Error(ErrorCode::kCorruptData,
                cat(where, ": line ", second.root()->start_mark.line + 1, ": a second document; one is read"));
  }
  return value;
}

}  // namespace ms::core
